//! Objects by revision: one counter, a window of history, lists and watches. Knows no kind and no HTTP.
