"""Where the pass runs: tiles over threads, sites kept beside the rows."""
