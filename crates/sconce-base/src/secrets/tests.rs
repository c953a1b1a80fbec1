use super::*;
use proptest::prelude::*;

#[test]
fn names_of_secrets() {
    for name in [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "PASSWORD",
        "DB_PASSWD",
        "--password",
        "--api-key",
        "--token",
        "hub_token",
        "wandb.api_key",
        "apiKey",
        "accessToken",
        "GITHUB_TOKEN",
        "OPENAI_API",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "NPM_AUTH",
        "ssh_private_key",
        "KEY",
        "client-secret",
        "SECRET_KEY",
        "API_TOKENS",
        "redisPassword",
        "KEY_PASSPHRASE",
    ] {
        assert!(is_secret(name), "{name}");
    }
    for name in [
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "MONKEY",
        "TOKENIZER",
        "MAX_TOKENS",
        "--max-tokens",
        "--tokens-per-batch",
        "--pad-token",
        "--eos_token",
        "mask_token",
        "placeholder_token",
        "PATH",
        "KEY_PATH",
        "HF_TOKEN_PATH",
        "TOKEN_FILE",
        "SSH_AUTH_SOCK",
        "XAUTHORITY",
        "AUTHOR",
        "PWD",
        "PYTHONPATH",
        "--sort-key",
        "label_key",
        "API_URL",
        "key_dim",
        "--num-key-value-heads",
        "COMPASS",
        "BYPASS",
        "SECRETARY",
        "ACCESSIBILITY",
        "KeyError",
        "TURKEY",
        "",
        "_",
        "passes",
        "--n-tokens",
    ] {
        assert!(!is_secret(name), "{name}");
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn command_lines() {
    for (given, told) in [
        (
            "train.py --token s3same --lr 0.1",
            "train.py --token (masked) --lr 0.1",
        ),
        (
            "train.py --password=s3same x",
            "train.py --password=(masked) x",
        ),
        (
            "train.py wandb.api_key=s3same",
            "train.py wandb.api_key=(masked)",
        ),
        (
            "env HF_TOKEN=s3same LR=1 python x.py",
            "env HF_TOKEN=(masked) LR=1 python x.py",
        ),
        (
            "get https://me:s3same@host/a?token=s3same&b=1",
            "get https://(masked)@host/a?token=(masked)&b=1",
        ),
        ("curl -u me:s3same host", "curl -u me:(masked) host"),
        ("sh -c PASSWORD=s3same;run", "sh -c PASSWORD=(masked)"),
        ("a --password --verbose b", "a --password --verbose b"),
        ("a --password -1", "a --password (masked)"),
        ("python -u train.py", "python -u train.py"),
        (
            "a --max-tokens 512 --pad-token <pad> --token 3",
            "a --max-tokens 512 --pad-token <pad> --token 3",
        ),
        (
            "a --use-auth-token true train.py",
            "a --use-auth-token true train.py",
        ),
        ("a --token --key", "a --token --key"),
        (
            "a --url=https://me:s3same@h/ --key-path=/k",
            "a --url=https://(masked)@h/ --key-path=/k",
        ),
    ] {
        assert_eq!(mask_command(&words(given)), words(told), "{given}");
    }
}

/// Made up, each in the shape of its service; parted, so that scanners of this repository find none.
fn shapes() -> Vec<String> {
    let long = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5";
    let upper = "Q3ZJ7KX2M5NB8VLW";
    [
        format!("hf{}{long}", "_"),
        format!("ghp{}{long}", "_"),
        format!("github{}{long}", "_pat_"),
        format!("AK{}{upper}", "IA"),
        format!("sk{}{long}", "-"),
        format!("sk-proj{}{long}", "-"),
        format!("glpat{}{long}", "-"),
        format!("nvapi{}{long}", "-"),
        format!("xoxb{}{long}", "-"),
        format!("ey{}.{long}.{long}", "JhbGciOiJIUzI1NiJ9"),
    ]
    .into()
}

#[test]
fn shapes_are_known_anywhere() {
    for secret in shapes() {
        for around in [
            "{}", "a {} b", "x={}", "url/{}/y", "'{}',", "é{}é", "[\"{}\"]", "a=b/{}",
        ] {
            let told = mask_text(&around.replace("{}", &secret));
            assert_eq!(told, around.replace("{}", MASKED), "{secret}");
        }
    }
    let block = format!(
        "a -----BEGIN RSA PRIVATE {}-----\nMIIE\nabc=\n-----END RSA PRIVATE {0}-----\nb",
        "KEY"
    );
    assert_eq!(mask_text(&block), "a (masked)\nb");
    let cut = format!("-----BEGIN PRIVATE {}-----\nMIIE", "KEY");
    assert_eq!(mask_text(&cut), MASKED);
    for (given, told) in [
        (
            "Authorization: Bearer abc123def456",
            "Authorization: (masked)",
        ),
        (
            "-H 'authorization: Basic dXNlcjpwdw=='",
            "-H 'authorization: (masked)'",
        ),
        ("said Bearer abc123def456 to", "said Bearer (masked) to"),
        (
            r#"{"api_key": "s3same", "lr": 1}"#,
            r#"{"api_key": "(masked)", "lr": 1}"#,
        ),
        ("mysql password='s3same' x", "mysql password='(masked)' x"),
        ("X-Api-Key: s3same", "X-Api-Key: (masked)"),
    ] {
        assert_eq!(mask_text(given), told);
    }
}

#[test]
fn what_is_no_secret_stays() {
    for told in [
        "python train.py --model hf_internal/tiny --epochs 3",
        "s3://bucket/checkpoint-1234567890abcdef1234567890abcdef12345678/model.safetensors",
        "KeyError: 'token' in basic training of the tokenizer",
        "sha256:4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865",
        "https://example.org/a@b?x=y TOKENIZERS_PARALLELISM=false MONKEY=1 KEYBOARD=us",
        "sk-learn ghp_short hf_hub_download AKIA eyJ.a.b -----BEGIN CERTIFICATE-----",
        "tokens: 5, key: value",
        "no password: No such file",
        "--otlp-header authorization=@FILE has secrets",
        "TOKEN=$TOKEN",
        "a bearer instrument",
        "",
        "é ü ✓",
    ] {
        assert_eq!(mask_text(told), told);
        assert_eq!(mask_command(&words(told)).join(" "), told);
    }
    assert_eq!(mask_variable("TOKENIZERS_PARALLELISM", "false"), "false");
    assert_eq!(mask_variable("HF_TOKEN", ""), "");
    assert_eq!(mask_variable("HF_TOKEN", "x-y-z-secret"), MASKED);
    assert_eq!(
        mask_variable("PROXY", "http://me:pw@h:1"),
        "http://(masked)@h:1"
    );
}

proptest! {
    /// Wherever it stands, and whatever stands around it.
    #[test]
    fn no_secret_is_told(
        before in "[ -~é]{0,12}", after in "[ -~é]{0,12}", which in 0..10_usize, pass in "[a-z0-9]{9}zq"
    ) {
        let secret = &shapes()[which];
        let told = mask_text(&format!("{before} {secret} {after}"));
        prop_assert!(!told.contains(secret.as_str()), "{told}");
        for given in [
            format!("{before} https://me:{pass}@host/{after}"),
            format!("{before} DB_PASSWORD={pass} {after}"),
        ] {
            prop_assert!(!mask_text(&given).contains(&pass), "{given}");
        }
        let line = [before, "--auth-token".to_owned(), pass.clone(), format!("--db-password={pass}"), after];
        prop_assert!(!mask_command(&line).concat().contains(&pass), "{line:?}");
    }

    /// A record that is read is masked again.
    #[test]
    fn what_is_masked_stays_so(given in "[ -~é\n]{0,60}", token in "(token|password|api_key|sk-|Bearer |=|: |\"){0,6}") {
        let once = mask_text(&format!("{token}{given}"));
        prop_assert_eq!(mask_text(&once), once.clone());
        let line = words(&once);
        let told = mask_command(&line);
        prop_assert_eq!(mask_command(&told), told.clone());
    }
}
