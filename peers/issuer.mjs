// An OpenID Connect issuer (oauth2-mock-server) and, on a port beside it, what a test may ask of it:
//   POST /keys  RS256 ES256     begins anew with fresh keys for these algorithms, and no others
//   POST /sign?ES256  {claims}  a token by the key for this algorithm; a claim that is null is left out
import { createServer } from 'node:http';

const [library, port, control] = process.argv.slice(2);
const { OAuth2Server } = await import(library);
let server;

async function begin(algorithms) {
  await server?.stop();
  server = new OAuth2Server();
  for (const algorithm of algorithms) await server.issuer.keys.generate(algorithm);
  await server.start(Number(port), '127.0.0.1');
  server.issuer.url = `http://127.0.0.1:${port}`;
}

function sign(algorithm, claims) {
  const { kid } = server.issuer.keys.toJSON().find((key) => key.alg === algorithm);
  return server.issuer.buildToken({
    kid,
    scopesOrTransform: (_, payload) => {
      Object.assign(payload, claims);
      for (const name of Object.keys(claims)) if (claims[name] === null) delete payload[name];
    },
  });
}

async function answer(request) {
  const url = new URL(request.url, 'http://control');
  let body = '';
  for await (const chunk of request) body += chunk;
  if (url.pathname === '/sign') return sign(url.search.slice(1), JSON.parse(body));
  await begin(body.split(' '));
  return 'begun';
}

await begin(['RS256']);
createServer((request, response) => {
  answer(request).then(
    (text) => response.end(text),
    (error) => response.writeHead(500).end(String(error)),
  );
}).listen(Number(control), '127.0.0.1');
