//! Every form there and back, beside digits by plain division and beside what others wrote.

use super::*;
use crate::id::{Id, LAST_ID};

/// In the order of [`Form::ALL`], by division of Python's integers.
const GOLDEN: [(u64, [&str; 9]); 10] = [
    (
        0,
        [
            "0",
            "0000000000000000",
            "0000000000000",
            "0000000000000",
            "11111111111",
            "00000000000",
            "y",
            "0",
            "1",
        ],
    ),
    (
        1,
        [
            "1",
            "0000000000000001",
            "0000000000001",
            "0000000000001",
            "11111111112",
            "00000000001",
            "b",
            "1",
            "2",
        ],
    ),
    (
        61,
        [
            "61",
            "000000000000003d",
            "000000000001X",
            "000000000001p",
            "11111111124",
            "0000000000z",
            "b7",
            "1p",
            "24",
        ],
    ),
    (
        13_587,
        [
            "13587",
            "0000000000003513",
            "0000000000D8K",
            "0000000000ahf",
            "1111111153G",
            "000000003X9",
            "peu",
            "ahf",
            "53g",
        ],
    ),
    (
        1_116_766_490_855_473_152,
        [
            "1116766490855473152",
            "0f7f8d34e0800000",
            "0YZWD6KG80000",
            "08hg4ojd30u80",
            "3bMSZ1iiF7u",
            "1KUnkKheqTw",
            "69hpguoeyyyy",
            "8hg4ojd30u80",
            "3Amry1HHf7U",
        ],
    ),
    (
        1_128_275_363_336_683_521,
        [
            "1128275363336683521",
            "0fa8707710820001",
            "0ZA3GEW884001",
            "08klg8ie41ybl",
            "3cuJwaTbR1J",
            "1LLVoUFd7ez",
            "9kdoqheeryyb",
            "8klg8ie41ybl",
            "3BUiWzsAq1i",
        ],
    ),
    (
        1_427_970_479_175_499_776,
        [
            "1427970479175499776",
            "13d12b95c9000000",
            "17M9BJQ4G0000",
            "0aukdadxvwdmo",
            "4KFXQ5SZRkK",
            "1hU7R45DgmG",
            "b8wjm1zroyyyy",
            "aukdadxvwdmo",
            "4jfwp5ryqKj",
        ],
    ),
    (
        1_428_076_403_798_048_768,
        [
            "1428076403798048768",
            "13d18bec48800000",
            "17MCBXH480000",
            "0auleu31h9szk",
            "4KGMNY8jT8b",
            "1hUbVvYD84G",
            "b8wcm7treyyyy",
            "auleu31h9szk",
            "4jgmnx8Js8A",
        ],
    ),
    (
        4_611_686_018_427_387_904,
        [
            "4611686018427387904",
            "4000000000000000",
            "4000000000000",
            "0z1ci99jj7474",
            "Bht3tfQZv87",
            "5UfZOVH2ZO4",
            "ryyyyyyyyyyyy",
            "z1ci99jj7474",
            "bGT3TEpyV87",
        ],
    ),
    (
        9_223_372_036_854_775_807,
        [
            "9223372036854775807",
            "7fffffffffffffff",
            "7ZZZZZZZZZZZZ",
            "1y2p0ij32e8e7",
            "NQm6nKp8qFC",
            "AzL8n0Y58m7",
            "8999999999999",
            "1y2p0ij32e8e7",
            "npL6MjP8Qfc",
        ],
    ),
];

/// Ids of a campaign: a million a form where the code is optimised.
const IDS: usize = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };

/// Ids of every length, from splitmix64 (Steele, Lea and Flood, 2014).
fn ids() -> impl Iterator<Item = Id> {
    let mut state = 7_u64;
    let mut draw = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    std::iter::repeat_with(move || {
        let shift = if draw() % 2 == 0 { 1 } else { 1 + draw() % 63 };
        Id::new(draw() >> shift)
    })
    .take(IDS)
}

#[test]
fn each_form_writes_what_others_wrote_and_reads_it() {
    for (raw, texts) in GOLDEN {
        for (form, text) in Form::ALL.into_iter().zip(texts) {
            assert_eq!(&*form.text(Id::new(raw)), text, "{form}");
            assert_eq!(form.parse(text), Ok(Id::new(raw)), "{form}");
        }
    }
    // From the tests of the original.
    assert_eq!(Form::BwmarrinBase32.parse("b8wjm1zroyyyy"), Ok(Id::new(1_427_970_479_175_499_776)));
    assert_eq!(Form::BwmarrinBase58.parse("4jgmnx8Js8A"), Ok(Id::new(1_428_076_403_798_048_768)));
}

#[test]
fn ids_of_every_length_come_back_from_every_form() {
    for form in Form::ALL {
        for id in ids() {
            let text = form.text(id);
            assert_eq!(form.parse(&text), Ok(id), "{form} {text}");
            assert!(form.width().is_none_or(|width| text.len() == width), "{form} {text}");
        }
    }
}

#[test]
fn texts_of_one_width_sort_as_their_ids() {
    for form in Form::ALL.into_iter().filter(|form| form.width().is_some()) {
        let mut before = Id::new(LAST_ID / 2);
        for id in ids() {
            for other in [before, Id::new(id.raw() ^ 1), Id::new(id.raw() ^ (1 << 40))] {
                let (text, others) = (form.text(id), form.text(other));
                assert_eq!(text.as_bytes().cmp(others.as_bytes()), id.cmp(&other), "{form} {text} {others}");
            }
            before = id;
        }
    }
}

#[test]
fn a_form_has_one_name_and_nothing_else_is_one() {
    for form in Form::ALL {
        assert_eq!(form.to_string().parse(), Ok(form));
        assert!(UnknownForm.to_string().contains(form.name()));
    }
    for text in ["", "Base62", "base64", "base62 ", "bwmarrin"] {
        assert_eq!(text.parse::<Form>(), Err(UnknownForm), "{text:?}");
    }
}

#[test]
fn rubbish_is_refused_by_the_character_and_its_place() {
    let digit = |form, found, place| ParseIdError::Digit { form, found, place };
    for form in Form::ALL {
        let good = form.text(Id::new(1_128_275_363_336_683_521));
        assert_eq!(form.parse(""), Err(ParseIdError::Empty { form }), "{form}");
        for (wrong, place) in [
            (' ', 1),
            ('\n', 3),
            ('!', 2),
            ('é', 1),
            ('注', 5),
            ('\u{1F600}', 4),
            ('\0', 2),
            ('+', 1),
            ('_', 6),
            ('٣', 3),
        ] {
            let mut text: Vec<char> = good.chars().collect();
            text[place - 1] = wrong;
            // The second is not told.
            text[place + 2] = '?';
            let text: String = text.into_iter().collect();
            assert_eq!(form.parse(&text), Err(digit(form, wrong, place)), "{form} {text:?}");
        }
        let error = form.parse("?").unwrap_err().to_string();
        assert!(error.contains("character 1 is '?'") && error.contains(form.name()), "{error}");
        assert!(error.ends_with(form.digits()), "{error}");
        let mut longer = good.to_string();
        longer.push_str(&good);
        let error = form.parse(&longer).unwrap_err();
        let length = form.width().map(|wanted| ParseIdError::Length { form, found: 2 * wanted, wanted });
        assert_eq!(error, length.unwrap_or(ParseIdError::Range { form }), "{form}");
        let short = form.width().map(|wanted| ParseIdError::Length { form, found: wanted - 1, wanted });
        assert_eq!(form.parse(&good[1..]).err(), short, "{form}");
    }
    assert_eq!(Form::Crockford32.parse("0ZA3GEW88400U"), Err(digit(Form::Crockford32, 'U', 13)));
    assert_eq!(Form::Base58.parse("3cuJwaTbR1l"), Err(digit(Form::Base58, 'l', 11)));
    assert_eq!(Form::BwmarrinBase32.parse("B8wjm1zroyyyy"), Err(digit(Form::BwmarrinBase32, 'B', 1)));
    assert_eq!(Form::Crockford32.parse("---"), Err(ParseIdError::Empty { form: Form::Crockford32 }));
}

#[test]
fn a_number_above_the_last_id_is_refused_in_every_form() {
    for (form, above) in [
        (Form::Decimal, "9223372036854775808"),
        (Form::Decimal, "18446744073709551617"),
        (Form::Hex, "8000000000000000"),
        (Form::Crockford32, "8000000000000"),
        (Form::Base36, "1y2p0ij32e8e8"),
        (Form::Base58, "NQm6nKp8qFD"),
        (Form::Base62, "AzL8n0Y58m8"),
        (Form::Base62, "zzzzzzzzzzz"),
        (Form::BwmarrinBase32, "eyyyyyyyyyyyy"),
        (Form::BwmarrinBase36, "1y2p0ij32e8e8"),
        (Form::BwmarrinBase58, "npL6MjP8Qfd"),
    ] {
        assert_eq!(form.parse(above), Err(ParseIdError::Range { form }), "{above}");
        assert!(form.parse(above).unwrap_err().to_string().contains("above 9223372036854775807"));
    }
}

#[test]
fn what_people_type_is_read_where_a_form_allows_it() {
    let id = Id::new(1_128_275_363_336_683_521);
    for text in ["0ZA3GEW884001", "0za3gew884001", "Oza3-GEW8-84ooI", "oza3gew8840-0l-"] {
        assert_eq!(Form::Crockford32.parse(text), Ok(id), "{text}");
    }
    assert_eq!(Form::Hex.parse("0FA8707710820001"), Ok(id));
    assert_eq!(Form::Base36.parse("08KLG8IE41YBL"), Ok(id));
    assert_eq!(Form::BwmarrinBase36.parse("8KLG8IE41YBL"), Ok(id));
    assert_eq!(Form::Decimal.parse("00000001128275363336683521"), Ok(id));
    assert_eq!(" 1128275363336683521\n".parse(), Ok(id));
}

#[test]
fn a_prefix_is_written_and_must_be_there_when_it_is_read() {
    let orders = Form::Base62.prefixed("ord_").unwrap();
    let id = Id::new(1_128_275_363_336_683_521);
    assert_eq!(orders.text(id).to_string(), "ord_1LLVoUFd7ez");
    assert_eq!(orders.parse("ord_1LLVoUFd7ez"), Ok(id));
    let prefix = |place, wanted, found| Err(ParseIdError::Prefix { place, wanted, found });
    assert_eq!(orders.parse("ord-1LLVoUFd7ez"), prefix(4, '_', Some('-')));
    assert_eq!(orders.parse("1LLVoUFd7ez"), prefix(1, 'o', Some('1')));
    assert_eq!(orders.parse("or"), prefix(3, 'd', None));
    assert_eq!(orders.parse("öord_"), prefix(1, 'o', Some('ö')));
    assert_eq!(orders.parse("ord_"), Err(ParseIdError::Empty { form: Form::Base62 }));
    let digit = ParseIdError::Digit { form: Form::Base62, found: '!', place: 6 };
    assert_eq!(orders.parse("ord_1!LVoUFd7ez"), Err(digit), "places count from the beginning of the text");
    assert!(
        orders
            .parse("or")
            .unwrap_err()
            .to_string()
            .contains("character 3 is missing, and the prefix has 'd'")
    );
    assert_eq!(Form::Hex.prefixed("").unwrap().parse("0fa8707710820001"), Ok(id));
    for (text, found, place) in
        [("9_", '9', 1), ("_x", '_', 1), ("or d", ' ', 3), ("örd", 'ö', 1), ("a\n", '\n', 2)]
    {
        assert_eq!(Form::Hex.prefixed(text), Err(PrefixError::Character { found, place }), "{text:?}");
    }
    assert!(Form::Hex.prefixed(&"x".repeat(32)).is_ok());
    assert_eq!(Form::Hex.prefixed(&"x".repeat(33)), Err(PrefixError::Length { len: 33 }));
}

proptest::proptest! {
    #[test]
    fn no_text_panics_and_what_is_read_is_an_id(text in "\\PC{0,20}", prefix in "[a-z]{0,3}_?") {
        for form in Form::ALL {
            let plain = form.parse(&text);
            let behind = form.prefixed(&prefix).map_or(plain, |prefixed| prefixed.parse(&text));
            for id in [plain, behind].into_iter().flatten() {
                proptest::prop_assert_eq!(form.parse(&form.text(id)), Ok(id));
            }
        }
    }
}
