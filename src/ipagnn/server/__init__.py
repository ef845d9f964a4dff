"""The page of `ipagnn serve` and the HTTP API beneath it; needs the extra `page`."""
