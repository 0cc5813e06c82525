//! Files that are right, files that are wrong, and what is said of them.
