//! Namespaces that are not made as the default one.

mod moving;
mod opaque;
