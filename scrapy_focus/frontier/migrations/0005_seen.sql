-- Rows of URLs that are over may be removed, once a seen set beside the frontier knows their keys.
-- Which set the job is run with; NULL: exact, the rows themselves.
ALTER TABLE jobs ADD COLUMN seen TEXT;
-- The last round of removals whose keys the set has stored; 0: none were removed because of it.
ALTER TABLE jobs ADD COLUMN seen_round INTEGER NOT NULL DEFAULT 0;
-- How many rows are gone of those that the counters count, and how many of these were charged.
ALTER TABLE jobs ADD COLUMN gone_done INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN gone_failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN gone_dropped INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN gone_pages INTEGER NOT NULL DEFAULT 0;
