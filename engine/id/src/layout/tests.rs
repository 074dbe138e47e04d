use proptest::prelude::*;

use super::*;

/// All widths, and every face.
fn any_layout() -> impl Strategy<Value = Layout> {
    (LEAST_BITS..=ID_BITS, 0u8..=22, 1u8..=24, 1u32..=1_000_000, 0u64..=4_000_000_000_000, 0usize..3)
        .prop_filter_map("time bits", |(bits, worker, sequence, tick, epoch, face)| {
            let time = bits.checked_sub(worker + sequence)?;
            let layout = Layout::new(time, worker, sequence, tick, epoch).ok()?;
            layout.with_face(Face::ALL[face]).checked_face().ok()
        })
}

proptest! {
    #[test]
    fn an_id_decodes_to_the_parts_it_was_made_of(
        layout in any_layout(), t in any::<u64>(), w in any::<u32>(), s in any::<u32>()
    ) {
        let (tick, worker, sequence) = (t & layout.last_tick(), w % layout.workers(), s % layout.sequences());
        let id = layout.encode(tick, worker, sequence);
        prop_assert!(id <= layout.last_id());
        let parts = layout.decode(id);
        prop_assert_eq!((parts.tick, parts.worker, parts.sequence), (tick, worker, sequence));
        prop_assert_eq!(layout.tick_of(id.raw()), tick);
    }

    #[test]
    fn every_raw_id_of_the_layout_s_bits_encodes_back_to_itself(layout in any_layout(), raw in any::<u64>()) {
        let raw = raw & layout.last_id().raw();
        let parts = layout.decode(Id::new(raw));
        prop_assert_eq!(layout.encode(parts.tick, parts.worker, parts.sequence).raw(), raw);
        prop_assert_eq!(layout.face_of(layout.plot_of(Id::new(raw))).raw(), raw);
    }

    #[test]
    fn neighbouring_plots_of_a_tick_are_a_stride_apart(
        layout in any_layout(), t in any::<u64>(), w in any::<u32>(), s in any::<u32>()
    ) {
        let (tick, worker) = (t & layout.last_tick(), w % layout.workers());
        let sequence = s % (layout.sequences() - 1);
        let [first, second] = [sequence, sequence + 1].map(|at| layout.encode(tick, worker, at).raw());
        prop_assert_eq!(second - first, u64::from(layout.run_stride()));
    }

    #[test]
    fn a_layout_survives_its_bytes_and_its_text(layout in any_layout()) {
        prop_assert_eq!(Layout::from_bytes(layout.to_bytes()), Ok(layout));
        prop_assert_eq!(layout.to_text().parse(), Ok(layout));
    }

    #[test]
    fn a_tick_begins_at_its_own_instant(layout in any_layout(), tick in 0u64..1 << 40) {
        let ns = layout.tick_to_ns(tick);
        if ns < u64::MAX {
            prop_assert_eq!(layout.tick_at_ns(ns), Some(tick));
        }
    }
}

#[test]
fn widths_that_are_too_few_or_too_many_are_refused_with_the_sum() {
    for (widths, says) in [
        ((41, 10, 13), "add up to 64"),
        ((20, 10, 9), "add up to 39, and an id has 40 to 63"),
        ((16, 23, 23), "worker has 23 bits, and 0 to 22 are allowed"),
    ] {
        let (time, worker, sequence) = widths;
        let error = Layout::new(time, worker, sequence, 1_000, 0).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_layout_is_read_by_name_or_by_its_widths_and_what_is_otherwise() {
    assert_eq!("41/10/12".parse(), Ok(Layout::default()));
    let own = "39/16/8, tick=10ms, epoch=1409529600000, face=worker-lowest".parse::<Layout>();
    assert_eq!(own, "sonyflake".parse());
    let shifted = "twitter,epoch=7".parse::<Layout>().unwrap();
    assert_eq!((shifted.epoch_ms(), shifted.time_bits()), (7, 41));
    for text in ["41/10", "41/10/12/1", "", "twiter", "41/10/x"] {
        assert_eq!(text.parse::<Layout>(), Err(LayoutError::Text), "{text}");
    }
    let error = "twiter".parse::<Layout>().unwrap_err().to_string();
    assert!(Layout::named().all(|(name, _)| error.contains(&format!("{name},"))), "{error}");
    for option in
        ["tick=10", "tick=-1ms", "tick=0.5ms", "face=upside-down", "epoch=now", "tack=1ms", "tick", ""]
    {
        let error = format!("41/10/12,{option}").parse::<Layout>().unwrap_err();
        assert_eq!(error, LayoutError::Option { option: option.to_owned() });
    }
    assert_eq!("41/10/12,tick=0ms".parse::<Layout>(), Err(LayoutError::Tick { tick_us: 0 }));
    assert_eq!(
        Layout::from_bytes([41, 10, 12, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        Err(LayoutError::FaceCode { code: 3 })
    );
    let error = LayoutError::OpaqueBits { bits: 53 };
    assert_eq!("js,face=opaque".parse::<Layout>(), Err(error.clone()));
    let js = "js".parse::<Layout>().unwrap();
    assert_eq!(Layout::from_bytes(js.with_face(Face::Opaque).to_bytes()), Err(error));
}

/// Ids of the generators themselves, and of their own arithmetic.
#[test]
fn ids_of_known_generators_have_the_parts_that_those_say() {
    let named = |name: &str| Layout::named().find(|(known, _)| *known == name).unwrap().1;
    for (name, raw, unix_ms, worker, sequence) in [
        // Of Twitter's own announcement of the format: worker 378 is datacentre 11, worker 26.
        ("twitter", 1_541_815_603_606_036_480, 1_656_432_460_105, 378, 0),
        // The example of Discord's reference.
        ("discord", 175_928_847_299_117_063, 1_462_015_105_796, 32, 7),
        // Instagram's own example: 2011-09-09 17:00 UTC, user 31341 in 2000 shards, sequence 5001 of 1024.
        ("instagram", (1_387_263_000 << 23) | (1_341 << 10) | (5_001 % 1_024), 1_315_607_284_721, 1_341, 905),
        // Field by field, as sonyflake composes them: time << 24 | sequence << 16 | machine.
        ("sonyflake", (1 << 24) | (2 << 16) | 3, 1_409_529_600_010, 3, 2),
        ("sonyflake2", (100 << 24) | (255 << 16) | 65_535, 1_735_689_601_000, 65_535, 255),
    ] {
        let layout = named(name);
        let parts = layout.decode(Id::new(raw));
        assert_eq!((parts.unix_ms, parts.worker, parts.sequence), (unix_ms, worker, sequence), "{name}");
        assert_eq!(layout.encode(parts.tick, worker, sequence).raw(), raw, "{name}");
    }
    assert_eq!(named("js").last_id().raw(), (1 << 53) - 1);
    assert_eq!((named("js").workers(), named("js").sequences()), (32, 128));
    for (name, year) in [
        ("xuid", 2087),
        ("twitter", 2080),
        ("discord", 2084),
        ("instagram", 2046),
        ("sonyflake", 2188),
        ("sonyflake2", 2199),
    ] {
        let layout = named(name);
        // Years of 365.2425 days.
        let years = layout.tick_to_ms(layout.last_tick()) / 31_556_952_000;
        assert_eq!(1970 + years, year, "{name}");
    }
}
