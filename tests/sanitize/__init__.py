"""The compiled operators under the sanitizers of the compiler, for `make sanitize`: random operands, and their own tests."""
