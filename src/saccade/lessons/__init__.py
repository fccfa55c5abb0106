"""Interactive lessons on attention, each computed by the library itself. `registry.LESSONS` lists them all."""
