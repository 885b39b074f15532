"""Where a pass runs: threads of one machine, or a Dask cluster; sites are kept beside the rows."""
