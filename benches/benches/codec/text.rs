//! Ids as text: each form to write and to read, beside the decimal of the standard library and of itoa.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use xuid_engine::{Form, Id};

/// Ids of an iteration, of one worker's ticks: more than a branch predictor learns by heart.
const IDS: u64 = 4_096;

/// A raw id of the years this runs in.
const FIRST: u64 = 1_128_275_363_336_683_521;

/// Each form.
pub(crate) fn all(criterion: &mut Criterion) {
    // A tick and a few ids apart.
    let ids: Vec<Id> = (0..IDS).filter_map(|index| Id::from_raw(FIRST + index * 4_194_307)).collect();
    for form in Form::ALL {
        for id in &ids {
            assert_eq!(form.parse(&form.text(*id)), Ok(*id), "{form}");
        }
    }
    write(criterion, &ids);
    read(criterion, &ids);
}

fn write(criterion: &mut Criterion, ids: &[Id]) {
    let mut group = criterion.benchmark_group("id to text");
    group.throughput(Throughput::Elements(IDS));
    for form in Form::ALL {
        group.bench_function(BenchmarkId::from_parameter(form), |bencher| {
            bencher.iter(|| ids.iter().for_each(|id| _ = black_box(form.text(black_box(*id)).as_str())));
        });
    }
    group.bench_function("to_string", |bencher| {
        bencher.iter(|| ids.iter().for_each(|id| _ = black_box(black_box(*id).raw().to_string())));
    });
    let mut buffer = itoa::Buffer::new();
    group.bench_function("itoa", |bencher| {
        bencher.iter(|| ids.iter().for_each(|id| _ = black_box(buffer.format(black_box(*id).raw()))));
    });
    group.finish();
}

fn read(criterion: &mut Criterion, ids: &[Id]) {
    let mut group = criterion.benchmark_group("text to id");
    group.throughput(Throughput::Elements(IDS));
    for form in Form::ALL {
        let texts: Vec<String> = ids.iter().map(|id| form.text(*id).to_string()).collect();
        group.bench_function(BenchmarkId::from_parameter(form), |bencher| {
            bencher.iter(|| texts.iter().for_each(|text| _ = black_box(form.parse(black_box(text)))));
        });
    }
    let texts: Vec<String> = ids.iter().map(Id::to_string).collect();
    group.bench_function("u64::from_str", |bencher| {
        bencher.iter(|| texts.iter().for_each(|text| _ = black_box(black_box(text).parse::<u64>())));
    });
    group.finish();
}
