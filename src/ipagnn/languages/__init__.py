"""The languages of programs: `base` says what a language is; each has a package of its own."""
