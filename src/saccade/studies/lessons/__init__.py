"""The lectures, live: lessons as data, each computed by the library itself. `table.LESSONS` has them all."""
