"""Published studies as data and scores, with the statistics and pictures they share."""
