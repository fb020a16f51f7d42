//! A lexical half to compare fusions with: PostgreSQL's full text search, where any word of a question counts, the rarer the more.

use slipway_peers::Postgres;

/// The most bytes of a statement on a command line.
const MAX_SQL_BYTES: usize = 100_000;

pub(crate) struct Lexical(Postgres);

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Lexical {
    pub(crate) fn start() -> Self {
        let postgres = Postgres::start();
        postgres.psql("CREATE TABLE questions (id int, words tsquery); CREATE TABLE chunks (id int, words tsvector)");
        Self(postgres)
    }

    /// For each question the chunks that have a word of it, best first.
    pub(crate) fn ranked(&self, questions: &[String], chunks: &[String], most: usize) -> Vec<Vec<usize>> {
        self.0.psql("TRUNCATE questions, chunks");
        self.insert(questions, |id, text| {
            format!("INSERT INTO questions VALUES ({id}, replace(plainto_tsquery('english', {text})::text, '&', '|')::tsquery);")
        });
        self.insert(chunks, |id, text| format!("INSERT INTO chunks VALUES ({id}, to_tsvector('english', {text}));"));
        let rows = self.0.psql(&format!(
            "WITH words AS (SELECT q.id, w.word, w.word::tsquery AS query FROM questions q, unnest(string_to_array(q.words::text, ' | ')) w (word)),
                  shares AS (SELECT word, ln(1 + (SELECT count(*) FROM chunks) / (0.5 + (SELECT count(*) FROM chunks c WHERE c.words @@ word::tsquery))) AS weight
                             FROM (SELECT DISTINCT word FROM words) w),
                  scores AS (SELECT q.id AS question, c.id AS chunk, sum(s.weight * ts_rank(c.words, q.query, 1)) AS score
                             FROM words q JOIN shares s USING (word) JOIN chunks c ON c.words @@ q.query GROUP BY 1, 2)
             SELECT question, string_agg(chunk::text, ',' ORDER BY score DESC, chunk) FROM
                 (SELECT *, row_number() OVER (PARTITION BY question ORDER BY score DESC, chunk) AS place FROM scores) s
             WHERE place <= {most} GROUP BY 1"
        ));
        let mut ranked = vec![Vec::new(); questions.len()];
        for row in rows.lines() {
            let (question, chunks) = row.split_once('|').unwrap();
            ranked[question.parse::<usize>().unwrap()] = chunks.split(',').map(|chunk| chunk.parse().unwrap()).collect();
        }
        ranked
    }

    fn insert(&self, texts: &[String], statement: impl Fn(usize, &str) -> String) {
        let mut sql = String::new();
        for (id, text) in texts.iter().enumerate() {
            let next = statement(id, &quoted(text));
            if sql.len() + next.len() > MAX_SQL_BYTES {
                self.0.psql(&std::mem::take(&mut sql));
            }
            sql.push_str(&next);
        }
        if !sql.is_empty() {
            self.0.psql(&sql);
        }
    }
}
