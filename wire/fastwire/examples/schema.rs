//! Prints the schema of the plain form: `cargo run -p whimbrel-fastwire --example schema > wire/fastwire/testdata/ngap.fbs`

fn main() {
    print!("{}", whimbrel_ngap::fast::schema());
}
