"""The engine that runs passes on a Dask cluster."""
