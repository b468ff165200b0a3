-- Parts of a host that have a share of the budget of their own: a queue for each. The unique
-- constraint grows by a column, so the table is made anew.
CREATE TABLE new_queues (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs,
    host TEXT NOT NULL,
    pace INTEGER NOT NULL REFERENCES hosts,
    owner INTEGER NOT NULL DEFAULT 0,       -- a run, for rows that live no longer than it
    share TEXT NOT NULL DEFAULT '',         -- the prefix of its URLs that has a share, or ''
    waiting INTEGER NOT NULL DEFAULT 0,     -- not leased
    ready INTEGER NOT NULL DEFAULT 0,       -- of these, not deferred
    pages INTEGER NOT NULL DEFAULT 0,       -- charged to the shares of host and prefix
    retired INTEGER NOT NULL DEFAULT 0,     -- 1: one of these is spent
    head REAL,                              -- rank of the best ready row
    head_id INTEGER,
    tie REAL NOT NULL DEFAULT 0,            -- tells equal heads apart, lower first
    aged INTEGER NOT NULL DEFAULT 0,        -- 1: tie is head_id, 0: tie is hosts.touched
    at REAL NOT NULL DEFAULT 0,             -- 0: open; else when it opens; 1e18: busy
    UNIQUE (job, host, pace, owner, share)
);
INSERT INTO new_queues (id, job, host, pace, owner, waiting, ready, pages, retired, head, head_id,
    tie, aged, at)
SELECT id, job, host, pace, owner, waiting, ready, pages, retired, head, head_id, tie, aged, at
FROM queues;
DROP TABLE queues;
ALTER TABLE new_queues RENAME TO queues;
-- lease: the best head among the open queues of a job.
CREATE INDEX queues_open ON queues (job, owner, head, tie, head_id) WHERE at = 0 AND head IS NOT NULL;
-- lease, next_due: which queues open, and when.
CREATE INDEX queues_cooling ON queues (job, at) WHERE at > 0 AND head IS NOT NULL;
-- All queues that a touch of their pace group concerns: those of jobs that a run is at.
CREATE INDEX queues_pace ON queues (pace, job);
