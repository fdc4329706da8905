use super::table::ALIASES;
use super::*;
use crate::address::{Address, AddressDraft};
use proptest::prelude::*;
use regex::Regex;
use std::collections::BTreeSet;

fn kind(name: &str) -> &'static AccountType {
    AccountType::from_name(name).unwrap_or_else(|| panic!("no type {name}"))
}

/// Every field of the type with its example, and the first of each group.
fn examples(kind: &AccountType) -> BTreeMap<String, FieldValue> {
    let mut groups = BTreeSet::new();
    let fields = kind.fields.iter().filter(|field| match field.presence {
        Presence::OneOf(group) => groups.insert(group),
        Presence::Required | Presence::Optional => true,
    });
    fields.map(|field| (field.name.to_owned(), field.example())).collect()
}

fn person() -> BeneficiaryDraft {
    BeneficiaryDraft {
        beneficiary_type: Some("INDIVIDUAL".into()),
        full_name: Some("Maria da Silva".into()),
        birth_date: Some("1990-05-17".into()),
        nationality: Some("BR".into()),
        ..BeneficiaryDraft::default()
    }
}

fn holder(kind: &AccountType) -> Option<BeneficiaryDraft> {
    (!kind.is_wallet()).then(person)
}

/// The account of the type's examples with these fields changed.
fn account(name: &str, changes: &[(&str, &str)]) -> Result<AccountInfo, Vec<FieldError>> {
    let kind = kind(name);
    let mut fields = examples(kind);
    fields.extend(changes.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())));
    AccountInfo::new(kind, fields, None, holder(kind))
}

fn broken(result: Result<AccountInfo, Vec<FieldError>>) -> Vec<(String, Rule)> {
    let errors = result.expect_err("something is wrong");
    errors.into_iter().map(|error| (error.field, error.rule)).collect()
}

#[test]
fn the_table_has_every_type_and_currency() {
    let names: BTreeSet<_> = types().iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), types().len());
    assert_eq!(types().iter().filter(|kind| !kind.is_wallet()).count(), 24);
    assert_eq!(types().iter().filter(|kind| kind.is_wallet()).count(), 7);
    assert_eq!(Currency::all().filter(|currency| has_rail(*currency)).count(), 27);
    for kind in types() {
        assert!(!kind.currencies.is_empty() && !kind.rails.is_empty(), "{}", kind.name);
        for code in kind.currencies {
            assert!(Currency::from_code(code).is_some(), "{code}");
        }
        assert_eq!(kind.networks.is_empty(), !kind.is_wallet(), "{}", kind.name);
        assert_eq!(kind.can_pull, !kind.is_wallet(), "{}", kind.name);
        assert!(kind.field("platformAccountId").is_some(), "{}", kind.name);
        assert!(!kind.instruction_fields.is_empty(), "{}", kind.name);
        let names: BTreeSet<_> = kind.fields.iter().map(|field| field.name).collect();
        assert_eq!(names.len(), kind.fields.len(), "{}", kind.name);
    }
}

/// Otherwise a typing error in a pattern would refuse everything silently, and
/// `primary_identifier` could fail.
#[test]
fn every_field_is_sound() {
    let of_types =
        types().iter().flat_map(|kind| kind.fields.iter().chain(kind.instruction_fields));
    for field in of_types.chain(beneficiary_fields()).chain(Address::fields()) {
        let name = field.name;
        let anchored = field.pattern.starts_with('^') && field.pattern.ends_with('$');
        assert!(field.pattern.is_empty() || anchored, "{name}");
        assert!(field.pattern.is_empty() || Regex::new(field.pattern).is_ok(), "{name}");
        assert!(field.min_length >= 1 && field.min_length <= field.max_length, "{name}");
        assert!(!field.description.is_empty(), "{name}");
        if name != "reference" {
            assert_eq!(field.check_value(&field.example()), Ok(()), "{name}");
        }
    }
    for kind in types() {
        let certain = |field: &&Field| field.presence != Presence::Optional;
        let primary: Vec<_> = kind.fields.iter().filter(|field| field.is_identifier()).collect();
        assert!(!primary.is_empty() && primary.iter().all(certain), "{}", kind.name);
    }
}

#[test]
fn examples_are_valid_also_on_live_platforms() {
    for kind in types() {
        let account = AccountInfo::new(kind, examples(kind), None, holder(kind))
            .unwrap_or_else(|errors| panic!("{}: {errors:?}", kind.name));
        assert_eq!(account.check_digits(), [], "{}", kind.name);
        assert_eq!(account.rails(), kind.rails);
        assert_eq!(account.fields(), &examples(kind));
        assert_eq!(account.beneficiary().is_some(), !kind.is_wallet());
        assert!(!account.primary_identifier().is_empty());
    }
}

#[test]
fn an_erased_account_is_a_valid_one_that_says_nothing() {
    for kind in types() {
        let account = AccountInfo::new(kind, examples(kind), None, holder(kind)).expect("valid");
        let erased = account.erased();
        assert_eq!((erased.account_type(), erased.rails()), (kind, account.rails()));
        assert_eq!(erased.erased(), erased, "once is enough");
        assert_eq!(erased.beneficiary().is_some(), account.beneficiary().is_some());
        let shown = format!("{:?}", erased.beneficiary());
        let named = account.beneficiary().and_then(|it| it.to_draft().full_name);
        assert!(named.is_none_or(|name| !shown.contains(&name)), "{}: {shown}", kind.name);
    }
}

#[test]
fn everything_that_is_missing_is_reported_at_once() {
    for kind in types() {
        let mut expected: Vec<String> = kind
            .fields
            .iter()
            .filter(|field| field.presence == Presence::Required)
            .map(|field| field.name.to_owned())
            .collect();
        if kind.name == "LIGHTNING" {
            expected.push("invoice".into());
        }
        if !kind.is_wallet() {
            expected.push("beneficiary".into());
        }
        let found = broken(AccountInfo::new(kind, BTreeMap::new(), None, None));
        let expected: Vec<_> = expected.into_iter().map(|name| (name, Rule::Required)).collect();
        assert_eq!(found, expected, "{}", kind.name);
    }
}

#[test]
fn every_limit_refuses_a_wrong_value() {
    for kind in types() {
        for field in kind.fields {
            let wrong = |value: FieldValue| {
                let mut fields = examples(kind);
                fields.insert(field.name.into(), value);
                let found = broken(AccountInfo::new(kind, fields, None, holder(kind)));
                let found = found.into_iter().find(|(name, _)| name == field.name);
                found.unwrap_or_else(|| panic!("{} {}", kind.name, field.name)).1
            };
            let listed = |text: &str| match field.shape {
                Shape::TextList => FieldValue::List(vec![text.to_owned()]),
                Shape::Text | Shape::Date | Shape::Country => text.into(),
            };
            let long = "1".repeat(usize::from(field.max_length) + 1);
            assert_eq!(wrong(listed(&long)), Rule::MaxLength(field.max_length));
            assert_eq!(wrong(listed("")), Rule::MinLength(field.min_length));
            if !field.pattern.is_empty() {
                let text = "!".repeat(usize::from(field.min_length));
                assert_eq!(wrong(listed(&text)), Rule::Pattern(field.pattern));
            }
            match field.shape {
                Shape::TextList => assert_eq!(wrong("MW".into()), Rule::Type("array")),
                Shape::Text | Shape::Date | Shape::Country => {
                    assert_eq!(wrong(FieldValue::List(vec![])), Rule::Type("string"));
                }
            }
        }
    }
}

/// Type and field, what is accepted, what is refused; several separated by commas.
const PATTERNS: &str = "
    USD_ACCOUNT routingNumber | 123456789 | 12345678, 1234567890, 12345678a
    USD_ACCOUNT accountNumber | 1234, 12345678901234567 | 12a4, 123456789012345678, -1
    USD_ACCOUNT accountCategory | CHECKING, SAVINGS | checking, OTHER
    BRL_ACCOUNT pixKey | 12345678901, 111.444.777-35 | maria@mail.example, 1114447773, é
    BRL_ACCOUNT pixKeyType | CPF, cpf, Cpf | PASSPORT, C P F
    BRL_ACCOUNT taxId | 12345678901, 12345678901234 | 1234567890, 123456789012345
    BRL_ACCOUNT taxId | 12ABC34501DE35 | 123.456.789-01, 12abc34501de35, 12ABC34501DEAB
    MXN_ACCOUNT clabeNumber | 123456789012345678 | 12345678901234567, 1234567890123456789
    EUR_ACCOUNT iban | DE89370400440532013003, NO9386011117947 | DE8937040044
    EUR_ACCOUNT iban | DE02370400440532013000, DE98370400440532013000 | DE99370400440532013000
    EUR_ACCOUNT iban | SA0380000000608010167519 | DE00370400440532013000, DE893704004405320130
    EUR_ACCOUNT iban | PK36SCBL0000001123456702 | DE01370400440532013000, US893704004405320130
    DKK_ACCOUNT iban | DK5000400440116243 | dk5000400440116243, DK50 0040 0440 1162 43
    EUR_ACCOUNT swiftBic | COBADEFF, COBADEFFXXX | COBADEF, COBADEFFXX, cobadeff
    EUR_ACCOUNT swiftCode | COBADEFF | COBADEFFX, C0BADEFF, COBAZZFF
    GBP_ACCOUNT sortCode | 200000, 20-00-00, 20-0000 | 20 00 00, 2000000, 20--0000
    GBP_ACCOUNT accountNumber | 12345678 | 1234567, 123456789
    INR_ACCOUNT vpa | testuser.002@okbank, a-b_c@ybl | no-address, a@b@c, a@b.c, @okbank
    NGN_ACCOUNT accountNumber | 0000000002 | 123456789, 12345678901
    CAD_ACCOUNT bankCode | 999 | 01, 0001
    CAD_ACCOUNT branchCode | 99999 | 0001, 000001
    CAD_ACCOUNT accountNumber | 1234567, 123456789012 | 123456, 1234567890123
    HKD_ACCOUNT swiftCode | HSBCHKHHHKH, NCBVXKPR | HSBCHKH, HSBCQQHH
    HKD_ACCOUNT accountNumber | 1, 123-456789-833 | -1, 1/2
    IDR_ACCOUNT phoneNumber | +62812345678, +62812345678901 | +6281234567, 0812345678
    ZAR_ACCOUNT accountNumber | 123456789, 1234567890123 | 12345678, 12345678901234
    KES_ACCOUNT phoneNumber | +254000000002 | +25471234567, 254712345678, +255712345678
    TZS_ACCOUNT phoneNumber | +255712345678 | +2557123456789
    ZMW_ACCOUNT phoneNumber | +260712345678 | +2607123456
    RWF_ACCOUNT phoneNumber | +250712345678 | +251712345678
    MWK_ACCOUNT phoneNumber | +265712345678 | +266712345678
    UGX_ACCOUNT phoneNumber | +256712345678 | +257712345678
    XOF_ACCOUNT phoneNumber | +221712345678 | +22171234567, +225071234567
    XOF_ACCOUNT phoneNumber | +221712345679 | +229971234567, +223712345678, +228901234567
    XOF_ACCOUNT region | SN | ML, sn, BJ, CI, TG
    SPARK_WALLET address | spark1pgssyuuuhnrrdjswal5c3s3rafw9w3y5dd4cj002 | spark1
    SPARK_WALLET address | SPARK1PGSSYUUUHNRRDJSWAL5C3S3RAFW9W3Y5DD4CJ002 | spark
    SPARK_WALLET address | sparkrt1pgssyuuuhnrrdjswal5c3s | bc1qar0srrr7xfkvy5l643lydnw9re59gtzz
    LIGHTNING invoice | lnbcrt1pqqqqqqqqqqqqqqqqqqqqq002 | invoice-of-maria-number-7
    USD_ACCOUNT bankName | Bank 2 | \u{3164}, \u{202E}Bank, \u{200B}
    SOLANA_WALLET address | 7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCF002 | 7EcDhSYG
    TRON_WALLET address | TR7NHqjeKQxGTCi8q8ZY4pL8otSzgj0002 | TR7NHqj
    POLYGON_WALLET address | 0x52908400098527886e0f7030069857d2e4169002 | 0x5290, 52908400
    BASE_WALLET address | 0x52908400098527886E0F7030069857D2E4169EE7 | 0x5290, 52908400
    ETHEREUM_WALLET address | 0x52908400098527886E0F7030069857D2E4169EE7 | 0x5290, 52908400
";

#[test]
fn patterns_are_those_of_the_contract() {
    for line in PATTERNS.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let (name, field) = cells[0].split_once(' ').expect("type and field");
        let texts = |cell: usize| cells[cell].split(", ").filter(|text| !text.is_empty());
        for text in texts(1) {
            assert!(account(name, &[(field, text)]).is_ok(), "{name} {field} {text}");
        }
        for text in texts(2) {
            let found = broken(account(name, &[(field, text)]));
            assert_eq!(found.len(), 1, "{name} {field} {text}");
            assert_eq!(found[0].0, field, "{text}");
        }
    }
}

#[test]
fn older_names_are_understood() {
    for (alias, name) in ALIASES {
        assert_eq!(AccountType::from_name(alias).map(|kind| kind.name), Some(name));
    }
    assert_eq!(AccountType::from_name("usd_account"), None);
    assert_eq!(AccountType::from_name(""), None);
}

#[test]
fn a_lightning_account_is_described_in_exactly_one_way() {
    let described = |names: &[&str]| {
        let kind = kind("LIGHTNING");
        let fields = kind.fields.iter().filter(|field| names.contains(&field.name));
        let fields = fields.map(|field| (field.name.to_owned(), field.example.into()));
        AccountInfo::new(kind, fields.collect(), None, None)
    };
    for name in ["invoice", "bolt12", "lightningAddress"] {
        let account = described(&[name]).expect("valid");
        assert_eq!(Some(account.primary_identifier()), account.text(name));
    }
    let both = broken(described(&["invoice", "lightningAddress"]));
    assert_eq!(both, [("lightningAddress".into(), Rule::Other)]);
    assert_eq!(broken(described(&[])), [("invoice".into(), Rule::Required)]);
}

#[test]
fn rails_are_all_of_the_type_or_those_chosen() {
    let with = |rails: &[&str]| {
        let kind = kind("USD_ACCOUNT");
        let rails = rails.iter().map(|rail| (*rail).to_owned()).collect();
        AccountInfo::new(kind, examples(kind), Some(rails), Some(person()))
    };
    let chosen = with(&["WIRE", "ACH", "WIRE"]).expect("valid");
    assert_eq!(chosen.rails(), [Rail::Wire, Rail::Ach]);
    for wrong in [&["SEPA"][..], &["ACH", "ach"], &["SWIFT"]] {
        let rule = Rule::Enum(vec!["ACH", "WIRE", "RTP", "FEDNOW"]);
        assert_eq!(broken(with(wrong)), [("paymentRails".into(), rule)]);
    }
    assert_eq!(broken(with(&[])), [("paymentRails".into(), Rule::MinLength(1))]);
}

#[test]
fn fields_of_the_clients_own_are_kept_within_bounds() {
    let account = account("USD_ACCOUNT", &[("nickname", "rent")]).expect("valid");
    assert_eq!(account.text("nickname"), Some("rent"));
    let long = "x".repeat(usize::from(EXTRA_VALUE_MAX) + 1);
    let name = "n".repeat(EXTRA_NAME_MAX + 1);
    for (field, text, rule) in [
        ("note", long.as_str(), Rule::MaxLength(EXTRA_VALUE_MAX)),
        ("note", "a\nb", Rule::Other),
        ("paymentRails", "ACH", Rule::Other),
        (&name, "x", Rule::Other),
    ] {
        assert_eq!(broken(super::tests::account("USD_ACCOUNT", &[(field, text)]))[0].1, rule);
    }
    let kind = kind("INR_ACCOUNT");
    let mut fields = examples(kind);
    fields.extend((0..=EXTRA_FIELDS_MAX).map(|number| (format!("own{number:03}"), "x".into())));
    let found = broken(AccountInfo::new(kind, fields, None, Some(person())));
    assert_eq!(found, [("own032".into(), Rule::Other)]);
}

#[test]
fn a_beneficiary_is_a_whole_person_or_business() {
    let with = |name: &str, draft: BeneficiaryDraft| {
        AccountInfo::new(kind(name), examples(kind(name)), None, Some(draft))
    };
    let only_name = BeneficiaryDraft { birth_date: None, nationality: None, ..person() };
    let required = |names: &[&str]| -> Vec<_> {
        names.iter().map(|name| (format!("beneficiary.{name}"), Rule::Required)).collect()
    };
    assert!(with("EUR_ACCOUNT", only_name.clone()).is_ok());
    let missing = broken(with("USD_ACCOUNT", only_name.clone()));
    assert_eq!(missing, required(&["birthDate", "nationality"]));
    let nameless = BeneficiaryDraft { full_name: None, ..only_name.clone() };
    assert_eq!(broken(with("EUR_ACCOUNT", nameless)), required(&["fullName"]));
    let business =
        BeneficiaryDraft { beneficiary_type: Some("BUSINESS".into()), ..only_name.clone() };
    assert_eq!(broken(with("USD_ACCOUNT", business.clone())), required(&["legalName"]));
    let business = BeneficiaryDraft { legal_name: Some("Silva Ltda".into()), ..business };
    let account = with("USD_ACCOUNT", business.clone()).expect("valid");
    let beneficiary = account.beneficiary().expect("given");
    assert_eq!((beneficiary.kind().name(), beneficiary.name()), ("BUSINESS", "Silva Ltda"));
    assert_eq!(beneficiary.to_draft(), business);
    let untyped = broken(with("USD_ACCOUNT", BeneficiaryDraft::default()));
    assert_eq!(untyped, required(&["beneficiaryType"]));

    let wrong = BeneficiaryDraft {
        birth_date: Some("1990-02-30".into()),
        nationality: Some("Brazil".into()),
        email: Some("no-address".into()),
        phone_number: Some("call me".into()),
        country_of_residence: Some("ZZ".into()),
        address: Some(AddressDraft::default()),
        ..person()
    };
    let found: Vec<_> =
        broken(with("USD_ACCOUNT", wrong)).into_iter().map(|(field, _)| field).collect();
    assert_eq!(
        found,
        [
            "beneficiary.birthDate",
            "beneficiary.nationality",
            "beneficiary.email",
            "beneficiary.phoneNumber",
            "beneficiary.countryOfResidence",
            "beneficiary.address.line1",
            "beneficiary.address.country",
            "beneficiary.address.postalCode",
        ]
    );
}

#[test]
fn the_suffix_ends_the_users_part() {
    for (name, field, text, suffix) in [
        ("USD_ACCOUNT", "accountNumber", "12345678002", Some("002")),
        ("USD_ACCOUNT", "accountNumber", "02", None),
        ("EUR_ACCOUNT", "iban", "DE89370400440532013003", Some("003")),
        ("INR_ACCOUNT", "vpa", "testuser.002@okbank", Some("002")),
        ("INR_ACCOUNT", "vpa", "ab@okbank", None),
        ("BRL_ACCOUNT", "pixKey", "11144477002", Some("002")),
        ("KES_ACCOUNT", "phoneNumber", "+254712345004", Some("004")),
        ("BASE_WALLET", "address", "0x52908400098527886E0F7030069857D2E4169003", Some("003")),
    ] {
        let account = account(name, &[(field, text)]).expect("valid");
        assert_eq!(account.magic_suffix(), suffix, "{text}");
    }
    for (kind, key, suffix) in [
        ("EMAIL", "maria.102@mail.example", "102"),
        ("EMAIL", "são@mail.example", "são"),
        ("PHONE", "+5511987654005", "005"),
        ("RANDOM", "7f1c9d4e-0b3a-4c55-9a57-0f2c1d9f8003", "003"),
    ] {
        let account = account("BRL_ACCOUNT", &[("pixKeyType", kind), ("pixKey", key)]);
        assert_eq!(account.expect("valid").magic_suffix(), Some(suffix), "{key}");
    }
}

/// Keys of each kind, and keys of another kind.
#[test]
fn a_pix_key_is_of_its_kind() {
    let keys = [
        ("CPF", "11144477735"),
        ("CNPJ", "11222333000181"),
        ("EMAIL", "maria@mail.example"),
        ("PHONE", "+5511987654321"),
        ("RANDOM", "7f1c9d4e-0b3a-4c55-9a57-0f2c1d9f8e11"),
    ];
    let is_valid = |kind: &str, key: &str| {
        account("BRL_ACCOUNT", &[("pixKeyType", kind), ("pixKey", key)]).is_ok()
    };
    for (kind, _) in keys {
        for (of, key) in keys {
            assert_eq!(is_valid(kind, key), kind == of, "{kind} {key}");
            assert_eq!(is_valid(&kind.to_lowercase(), key), kind == of, "{kind} {key}");
        }
    }
    for (kind, key) in [
        ("CNPJ", "12ABC34501DE35"),
        ("CNPJ", "12.ABC.345/01DE-35"),
        ("CNPJ", "00000000000002"),
        ("PHONE", "+551133334444"),
        ("EVP", "7F1C9D4E0B3A4C559A570F2C1D9F8E11"),
    ] {
        assert!(is_valid(kind, key), "{kind} {key}");
    }
    for (kind, key) in [
        ("CNPJ", "12abc34501de35"),
        ("PHONE", "11987654321"),
        ("PHONE", "+14155552671"),
        ("PHONE", "+55119876543210"),
        ("EMAIL", "maria@mail"),
        ("EMAIL", "maria mail@mail.example"),
        ("RANDOM", "7f1c9d4e-0b3a-4c55-9a57"),
    ] {
        assert!(!is_valid(kind, key), "{kind} {key}");
    }
}

#[test]
fn sepa_reaches_accounts_of_its_countries_only() {
    let with = |iban: &str, rails: Option<&[&str]>| {
        let kind = kind("EUR_ACCOUNT");
        let mut fields = examples(kind);
        fields.insert("iban".into(), iban.into());
        let rails = rails.map(|rails| rails.iter().map(|rail| (*rail).to_owned()).collect());
        AccountInfo::new(kind, fields, rails, Some(person()))
    };
    let (german, saudi) = ("DE89370400440532013000", "SA0380000000608010167519");
    let rails = |iban| with(iban, None).expect("valid").rails().to_vec();
    assert_eq!(rails(german), [Rail::Sepa, Rail::SepaInstant]);
    assert_eq!(rails(saudi), [Rail::BankTransfer]);
    assert_eq!(rails("FO6264600001631634"), [Rail::BankTransfer]);
    assert_eq!(rails("GB29NWBK60161331926819"), [Rail::Sepa, Rail::SepaInstant]);
    assert!(with(saudi, Some(&["BANK_TRANSFER"])).is_ok());
    for (iban, rail, reach) in [
        (saudi, "SEPA", vec!["BANK_TRANSFER"]),
        (saudi, "SEPA_INSTANT", vec!["BANK_TRANSFER"]),
        (german, "BANK_TRANSFER", vec!["SEPA", "SEPA_INSTANT"]),
    ] {
        let found = broken(with(iban, Some(&[rail])));
        assert_eq!(found, [("paymentRails".into(), Rule::Enum(reach))], "{iban} {rail}");
    }
}

#[test]
fn two_fields_do_not_contradict_each_other() {
    let bics = |code, older| account("EUR_ACCOUNT", &[("swiftCode", code), ("swiftBic", older)]);
    for same in ["COBADEFF", "COBADEFFXXX"] {
        assert!(bics("COBADEFFXXX", same).is_ok() && bics("COBADEFF", same).is_ok());
    }
    for other in ["DEUTDEFF", "COBADEFF100"] {
        assert_eq!(broken(bics("COBADEFF", other)), [("swiftBic".into(), Rule::Other)]);
    }
    let phones = [
        ("BJ", "+22997123456"),
        ("CI", "+2250712345678"),
        ("SN", "+221712345678"),
        ("TG", "+22890123456"),
    ];
    for (region, _) in phones {
        for (country, phone) in phones {
            let given = [("region", region), ("phoneNumber", phone)];
            let is_valid = account("XOF_ACCOUNT", &given).is_ok();
            assert_eq!(is_valid, region == country, "{region} {phone}");
        }
    }
}

#[test]
fn a_lightning_address_is_at_a_domain() {
    let described = |address: &str| {
        let fields = BTreeMap::from([("lightningAddress".to_owned(), address.into())]);
        AccountInfo::new(kind("LIGHTNING"), fields, None, None).is_ok()
    };
    for right in ["maria@wallet.example", "maria@localhost:8080", "m@w.example:65535"] {
        assert!(described(right), "{right}");
    }
    for wrong in ["maria@0", "maria@w..example", "maria@w.example:65536", "maria@-w.example"] {
        assert!(!described(wrong), "{wrong}");
    }
}

#[test]
fn a_beneficiary_was_born_before_today() {
    let today = Date::parse("2025-10-13").expect("a date");
    let errors = |birth: &str| {
        let draft = BeneficiaryDraft { birth_date: Some(birth.into()), ..person() };
        let kind = kind("EUR_ACCOUNT");
        let account = AccountInfo::new(kind, examples(kind), None, Some(draft));
        account.expect("a date that exists").implausible(today)
    };
    assert_eq!(errors("2025-10-13"), []);
    for birth in ["2025-10-14", "1899-12-31"] {
        assert_eq!(errors(birth)[0].field, "beneficiary.birthDate", "{birth}");
    }
}

#[test]
fn one_account_has_one_fingerprint_however_it_is_spelled() {
    let same = |name: &str, field: &str, left: &str, right: &str| {
        let currency = Currency::from_code(kind(name).currencies[0]).expect("known");
        let print =
            |text| account(name, &[(field, text)]).expect("valid").fingerprint_text(currency);
        print(left) == print(right)
    };
    for (name, field, left, right, expected) in [
        ("GBP_ACCOUNT", "sortCode", "20-00-00", "200000", true),
        ("GBP_ACCOUNT", "sortCode", "20-00-00", "20-00-01", false),
        (
            "EUR_ACCOUNT",
            "iban",
            "MT84MALT011000012345MTLCAST001S",
            "MT84malt011000012345mtlcast001s",
            true,
        ),
        ("HKD_ACCOUNT", "accountNumber", "123-456789-833", "123 456789 833", true),
        ("INR_ACCOUNT", "vpa", "Maria@okbank", "maria@OKBANK", true),
        ("INR_ACCOUNT", "vpa", "ma.ria@okbank", "maria@okbank", false),
        ("USD_ACCOUNT", "routingNumber", "021000021", "011000015", false),
        ("USD_ACCOUNT", "bankName", "One", "Another", true),
        ("USD_ACCOUNT", "platformAccountId", "one", "another", true),
        ("NGN_ACCOUNT", "bankName", "Access Bank", "access bank", true),
        ("NGN_ACCOUNT", "bankName", "Access Bank", "Zenith Bank", false),
        (
            "BASE_WALLET",
            "address",
            "0x52908400098527886E0F7030069857D2E4169EE7",
            "0x52908400098527886e0f7030069857d2e4169ee7",
            true,
        ),
        (
            "TRON_WALLET",
            "address",
            "TJRabPrwbZy45sbavfcjinPJC18kjpRTv8",
            "TJRabPrwbZy45sbavfcjinPJC18kjpRTV8",
            false,
        ),
    ] {
        assert_eq!(same(name, field, left, right), expected, "{name} {left} {right}");
    }
    let account = account("GBP_ACCOUNT", &[]).expect("valid");
    let pounds = Currency::from_code("GBP").expect("known");
    assert_eq!(
        account.fingerprint_text(pounds),
        "GBP_ACCOUNT\nGBP\nsortCode=200000\naccountNumber=55779911"
    );
}

#[test]
fn a_wallet_names_the_network_that_it_is_on() {
    let network = |name, named| kind(name).network(named);
    assert_eq!(network("SOLANA_WALLET", Some("SOLANA_DEVNET")), Ok(Some("SOLANA_DEVNET")));
    assert_eq!(network("LIGHTNING", Some("LIGHTNING_REGTEST")), Ok(Some("LIGHTNING_REGTEST")));
    assert_eq!(network("LIGHTNING", None), Ok(None));
    assert_eq!(network("USD_ACCOUNT", None), Ok(None));
    for kind in types() {
        let rule = kind.network(None).map_err(|error| (error.field, error.rule));
        let expected = if kind.name.ends_with("_WALLET") {
            Err(("cryptoNetwork".to_owned(), Rule::Required))
        } else {
            Ok(None)
        };
        assert_eq!(rule, expected, "{}", kind.name);
    }
    for (name, given) in [
        ("SOLANA_WALLET", "TRON_MAINNET"),
        ("BASE_WALLET", "ETHEREUM_MAINNET"),
        ("BASE_WALLET", "base_mainnet"),
        ("USD_ACCOUNT", "SOLANA_MAINNET"),
        ("TRON_WALLET", ""),
    ] {
        let error = network(name, Some(given)).expect_err("does not fit");
        assert_eq!(error.field, "cryptoNetwork", "{name} {given}");
    }
}

#[test]
fn wrong_check_digits_are_found_on_request_only() {
    for (name, field, text) in [
        ("USD_ACCOUNT", "routingNumber", "123456789"),
        ("EUR_ACCOUNT", "iban", "DE89370400440532013003"),
        ("DKK_ACCOUNT", "iban", "DK5000400440116002"),
        ("MXN_ACCOUNT", "clabeNumber", "123456789012345678"),
        ("BRL_ACCOUNT", "taxId", "12345678901"),
        ("BRL_ACCOUNT", "pixKey", "12345678901"),
        ("SOLANA_WALLET", "address", "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCF002"),
    ] {
        let errors = account(name, &[(field, text)]).expect("valid").check_digits();
        let found: Vec<_> =
            errors.iter().map(|error| (error.field.as_str(), &error.rule)).collect();
        assert_eq!(found, [(field, &Rule::Checksum)], "{name} {text}");
    }
    for (kind, key, holds) in [
        ("EMAIL", "maria@mail.example", true),
        ("cpf", "11144477735", true),
        ("cpf", "11144477734", false),
        ("Cnpj", "11222333000181", true),
        ("Cnpj", "11222333000180", false),
    ] {
        let key = [("pixKey", key), ("pixKeyType", kind)];
        let errors = account("BRL_ACCOUNT", &key).expect("valid").check_digits();
        assert_eq!(errors.is_empty(), holds, "{kind}");
    }
}

#[test]
fn the_reference_lists_everything() {
    let page = reference::markdown();
    for kind in types() {
        assert!(page.contains(&format!("\n## {}\n", kind.name)), "{}", kind.name);
        for field in kind.fields {
            assert!(page.contains(&format!("| `{}` |", field.name)), "{}", field.name);
        }
    }
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells = row.replace("\\|", "").matches('|').count();
        assert!(cells == 7 || cells == 3, "{row}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_an_account(
        number in 0..types().len(),
        texts in proptest::collection::vec(".{0,80}", 12),
        list in proptest::collection::vec(".{0,4}", 0..4),
        rails in proptest::option::of(proptest::collection::vec("[A-Z]{0,4}", 0..3)),
    ) {
        let kind = &types()[number];
        let mut fields = examples(kind);
        for (field, text) in kind.fields.iter().zip(&texts) {
            fields.insert(field.name.into(), text.as_str().into());
        }
        fields.insert(texts[10].clone(), texts[11].as_str().into());
        fields.insert(texts[9].clone(), FieldValue::List(list));
        let draft = BeneficiaryDraft {
            full_name: Some(texts[8].clone()),
            birth_date: Some(texts[7].clone()),
            nationality: Some(texts[6].clone()),
            ..person()
        };
        let _ = AccountInfo::new(kind, fields, rails, Some(draft));
    }

    #[test]
    fn no_pix_key_breaks_what_is_asked_of_an_account(key in "\\PC{1,60}@[a-zé]{1,5}[.]br") {
        let given = [("pixKeyType", "EMAIL"), ("pixKey", key.as_str())];
        let Ok(account) = account("BRL_ACCOUNT", &given) else { return Ok(()) };
        let suffix = account.magic_suffix().map(|suffix| suffix.chars().count());
        prop_assert!(suffix.is_none_or(|length| length == 3));
        account.fingerprint_text(Currency::from_code("BRL").expect("known"));
        account.check_digits();
    }
}
