//! The keys whose issuers gave them a form: what they begin with, of what and how long the rest is. The forms are
//! those that the issuers document or that are found in the wild.

pub(super) struct Token {
    pub(super) kind: &'static str,
    pub(super) prefix: &'static str,
    pub(super) body: Body,
    pub(super) least: usize,
    pub(super) most: usize,
}

/// Of what the rest of a key is made.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// Capital letters and digits.
    Upper,
    /// Letters and digits.
    Alnum,
    /// Letters, digits, `-` and `_`.
    Url,
    /// Also `.`, `=`, `+`, `/`, `~`, `!`, `%`.
    Wide,
    /// Hexadecimal digits.
    Hex,
}

impl Body {
    pub(super) fn has(self, byte: u8) -> bool {
        match self {
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Self::Wide => byte.is_ascii_alphanumeric() || b"-_.=+/~!%".contains(&byte),
            Self::Hex => byte.is_ascii_hexdigit(),
        }
    }
}

const fn token(kind: &'static str, prefix: &'static str, body: Body, least: usize, most: usize) -> Token {
    Token { kind, prefix, body, least, most }
}

use Body::{Alnum, Hex, Upper, Url, Wide};

/// A longer prefix stands before a shorter one that it begins with.
pub(super) const TOKENS: &[Token] = &[
    token("aws-access-key", "AKIA", Upper, 16, 16),
    token("aws-access-key", "ASIA", Upper, 16, 16),
    token("aws-access-key", "ABIA", Upper, 16, 16),
    token("aws-access-key", "ACCA", Upper, 16, 16),
    token("aws-bedrock-key", "ABSK", Wide, 100, 280),
    token("gcp-api-key", "AIza", Url, 35, 35),
    token("gcp-oauth-token", "ya29.", Url, 20, 1024),
    token("gcp-oauth-secret", "GOCSPX-", Url, 28, 28),
    token("github-token", "ghp_", Alnum, 36, 255),
    token("github-token", "gho_", Alnum, 36, 255),
    token("github-token", "ghu_", Alnum, 36, 255),
    token("github-token", "ghs_", Alnum, 36, 255),
    token("github-token", "ghr_", Alnum, 36, 255),
    token("github-token", "github_pat_", Url, 60, 255),
    token("gitlab-token", "glpat-", Wide, 20, 64),
    token("gitlab-token", "gldt-", Url, 20, 64),
    token("gitlab-token", "glptt-", Url, 20, 64),
    token("gitlab-token", "glrt-", Wide, 20, 64),
    token("gitlab-token", "glsoat-", Url, 20, 64),
    token("gitlab-token", "glcbt-", Url, 20, 64),
    token("gitlab-token", "glft-", Url, 20, 64),
    token("gitlab-token", "glffct-", Url, 20, 64),
    token("gitlab-token", "glimt-", Url, 20, 64),
    token("gitlab-token", "glagent-", Url, 20, 64),
    token("gitlab-token", "gloas-", Url, 20, 80),
    token("slack-token", "xoxb-", Url, 16, 255),
    token("slack-token", "xoxp-", Url, 16, 255),
    token("slack-token", "xoxa-", Url, 16, 255),
    token("slack-token", "xoxr-", Url, 16, 255),
    token("slack-token", "xoxs-", Url, 16, 255),
    token("slack-token", "xoxo-", Url, 16, 255),
    token("slack-token", "xoxc-", Url, 16, 255),
    token("slack-token", "xoxd-", Wide, 16, 512),
    token("slack-token", "xoxe.xox", Url, 20, 400),
    token("slack-token", "xoxe-", Url, 20, 400),
    token("slack-token", "xapp-", Url, 16, 255),
    token("slack-webhook", "hooks.slack.com/services/", Wide, 30, 100),
    token("anthropic-key", "sk-ant-", Url, 40, 160),
    token("openrouter-key", "sk-or-v1-", Hex, 64, 64),
    token("openai-key", "sk-proj-", Url, 40, 255),
    token("openai-key", "sk-svcacct-", Url, 40, 255),
    token("openai-key", "sk-admin-", Url, 40, 255),
    token("model-key", "sk-", Alnum, 32, 64),
    token("model-key", "gsk_", Alnum, 40, 64),
    token("model-key", "xai-", Url, 60, 100),
    token("model-key", "pplx-", Alnum, 40, 64),
    token("model-key", "r8_", Alnum, 37, 40),
    token("model-key", "fw_", Alnum, 22, 32),
    token("model-key", "tgp_v1_", Url, 40, 60),
    token("model-key", "nvapi-", Url, 40, 80),
    token("huggingface-token", "hf_", Alnum, 30, 40),
    token("huggingface-token", "api_org_", Alnum, 30, 40),
    token("langsmith-key", "lsv2_", Url, 36, 60),
    token("stripe-key", "sk_live_", Alnum, 10, 120),
    token("stripe-key", "sk_test_", Alnum, 10, 120),
    token("stripe-key", "rk_live_", Alnum, 10, 120),
    token("stripe-key", "rk_test_", Alnum, 10, 120),
    token("stripe-key", "sk_prod_", Alnum, 10, 120),
    token("stripe-key", "whsec_", Wide, 24, 80),
    token("square-token", "sq0atp-", Url, 20, 60),
    token("square-token", "sq0csp-", Url, 20, 60),
    token("square-token", "sq0idp-", Url, 20, 60),
    token("square-token", "sq0idk-", Url, 20, 60),
    token("square-token", "EAAA", Wide, 56, 64),
    token("facebook-token", "EAAM", Alnum, 80, 400),
    token("facebook-token", "EAAC", Alnum, 80, 400),
    token("shopify-token", "shpat_", Hex, 32, 32),
    token("shopify-token", "shpca_", Hex, 32, 32),
    token("shopify-token", "shppa_", Hex, 32, 32),
    token("shopify-token", "shpss_", Hex, 32, 32),
    token("sendgrid-key", "SG.", Wide, 60, 72),
    token("mailgun-key", "key-", Hex, 32, 32),
    token("twilio-key", "SK", Hex, 32, 32),
    token("npm-token", "npm_", Alnum, 36, 36),
    token("pypi-token", "pypi-AgE", Url, 50, 1024),
    token("rubygems-token", "rubygems_", Hex, 48, 48),
    token("crates-token", "cio", Alnum, 32, 32),
    token("clojars-token", "CLOJARS_", Alnum, 60, 60),
    token("docker-token", "dckr_pat_", Url, 20, 60),
    token("docker-token", "dckr_oat_", Url, 20, 60),
    token("digitalocean-token", "dop_v1_", Hex, 64, 64),
    token("digitalocean-token", "doo_v1_", Hex, 64, 64),
    token("digitalocean-token", "dor_v1_", Hex, 64, 64),
    token("databricks-token", "dapi", Hex, 32, 32),
    token("grafana-token", "glsa_", Url, 36, 60),
    token("grafana-token", "glc_", Wide, 32, 400),
    token("grafana-token", "eyJrIjoi", Wide, 60, 400),
    token("hashicorp-token", "hvs.", Url, 80, 200),
    token("hashicorp-token", "hvb.", Url, 100, 300),
    token("pulumi-token", "pul-", Hex, 40, 40),
    token("tailscale-key", "tskey-", Url, 16, 80),
    token("postman-token", "PMAK-", Url, 40, 80),
    token("newrelic-key", "NRAK-", Alnum, 27, 27),
    token("newrelic-key", "NRJS-", Alnum, 19, 19),
    token("newrelic-key", "NRII-", Url, 32, 32),
    token("planetscale-token", "pscale_tkn_", Wide, 30, 70),
    token("planetscale-token", "pscale_pw_", Wide, 30, 70),
    token("planetscale-token", "pscale_oauth_", Wide, 30, 70),
    token("linear-key", "lin_api_", Alnum, 40, 40),
    token("linear-key", "lin_oauth_", Alnum, 40, 64),
    token("notion-token", "ntn_", Alnum, 40, 60),
    token("figma-token", "figd_", Url, 40, 60),
    token("atlassian-token", "ATATT3", Wide, 180, 200),
    token("atlassian-token", "ATCTT3", Wide, 180, 200),
    token("doppler-token", "dp.pt.", Alnum, 40, 50),
    token("doppler-token", "dp.st.", Wide, 40, 70),
    token("dynatrace-token", "dt0c01.", Wide, 80, 100),
    token("duffel-token", "duffel_live_", Wide, 40, 50),
    token("duffel-token", "duffel_test_", Wide, 40, 50),
    token("easypost-token", "EZAK", Alnum, 54, 54),
    token("easypost-token", "EZTK", Alnum, 54, 54),
    token("flutterwave-key", "FLWSECK_TEST-", Alnum, 12, 40),
    token("frame-token", "fio-u-", Url, 60, 70),
    token("infracost-key", "ico-", Alnum, 32, 32),
    token("prefect-token", "pnu_", Alnum, 36, 36),
    token("readme-token", "rdme_", Alnum, 70, 70),
    token("sentry-token", "sntrys_", Wide, 60, 400),
    token("sentry-token", "sntryu_", Hex, 64, 64),
    token("supabase-key", "sbp_", Url, 40, 44),
    token("supabase-key", "sb_secret_", Url, 30, 50),
    token("octopus-key", "API-", Upper, 26, 32),
    token("openshift-token", "sha256~", Url, 43, 43),
    token("age-secret-key", "AGE-SECRET-KEY-1", Upper, 58, 58),
    token("artifactory-token", "AKCp", Alnum, 60, 80),
    token("artifactory-token", "cmVmdGtu", Alnum, 50, 60),
    token("onepassword-token", "ops_eyJ", Wide, 200, 2048),
    token("beamer-token", "b_", Url, 44, 44),
    token("airtable-token", "pat", Wide, 79, 79),
    token("vercel-token", "vck_", Alnum, 50, 60),
    token("nuget-key", "oy2", Alnum, 43, 43),
    token("mapbox-token", "pk.eyJ", Wide, 60, 120),
    token("mapbox-token", "sk.eyJ", Wide, 60, 120),
    token("azure-storage-key", "AccountKey=", Wide, 80, 100),
    token("intra42-token", "s-s4t2ud-", Hex, 64, 64),
    token("intra42-token", "s-s4t2af-", Hex, 64, 64),
    token("configcat-key", "configcat-sdk-1/", Wide, 40, 50),
    token("lob-key", "live_", Hex, 35, 35),
    token("deno-token", "ddp_", Alnum, 36, 36),
    token("deno-token", "ddo_", Alnum, 36, 36),
    token("canva-secret", "cnvca", Url, 40, 60),
    token("paddle-key", "pdl_live_apikey_", Url, 40, 60),
    token("paddle-key", "pdl_sdbx_apikey_", Url, 40, 60),
    token("unkey-key", "unkey_", Alnum, 20, 40),
    token("devin-key", "cog_", Alnum, 40, 60),
    token("thunderstore-token", "tss_", Url, 40, 60),
    token("heroku-key", "HRKU-AA", Url, 50, 64),
    token("modal-token", "ak-", Alnum, 22, 22),
    token("modal-token", "as-", Alnum, 22, 22),
    token("aikido-token", "AIK_CI_", Alnum, 40, 80),
    token("aikido-token", "AIK_SECRET_", Alnum, 40, 80),
    token("asaas-token", "aact_prod_", Wide, 30, 200),
    token("bitbucket-token", "BBDC-", Wide, 30, 100),
    token("buildkite-token", "bkua_", Alnum, 40, 60),
    token("cloudflare-token", "cfat_", Alnum, 40, 60),
    token("cloudflare-token", "cfut_", Alnum, 40, 60),
    token("cockroach-key", "CCDB1_", Url, 40, 80),
    token("datastax-token", "AstraCS:", Wide, 40, 120),
    token("docker-swarm-token", "SWMTKN-1-", Url, 70, 90),
    token("gitlab-token", "GR1348941", Url, 20, 40),
    token("labelbox-key", "lbx_", Url, 30, 60),
    token("mailersend-token", "mlsn.", Alnum, 50, 80),
    token("polar-token", "polar_oat_", Alnum, 40, 80),
    token("samsara-token", "samsara_api_", Alnum, 25, 50),
    token("voyage-key", "pa-", Url, 40, 60),
    token("wakatime-key", "waka_", Url, 36, 60),
    token("workato-token", "wrkaeu-", Wide, 60, 400),
    token("workato-token", "wrkaus-", Wide, 60, 400),
    token("stripe-key", "rk_prod_", Alnum, 10, 120),
    token("persona-key", "persona_production_", Url, 30, 60),
    token("miro-token", "eyJtaXJv", Url, 60, 200),
];

/// Which two bytes a key begins with, by `place`; other words are passed over with one look.
const BEGINNINGS: [bool; 1024] = {
    let mut places = [false; 1024];
    let mut at = 0;
    while at < TOKENS.len() {
        let prefix = TOKENS[at].prefix.as_bytes();
        places[place(prefix[0], prefix[1])] = true;
        at += 1;
    }
    places
};

const fn place(first: u8, second: u8) -> usize {
    (first as usize * 31 + second as usize) % 1024
}

pub(super) fn may_begin(text: &[u8]) -> bool {
    matches!(text, [first, second, ..] if BEGINNINGS[place(*first, *second)])
}
