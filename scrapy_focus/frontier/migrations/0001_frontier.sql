-- The frontier, first version. Times are Unix times in seconds.

-- A job's generation: started over, a job gets a new row, and the old one's URLs are
-- cleared away in the background. The counters make counts() independent of size.
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    policy TEXT NOT NULL DEFAULT '',
    created REAL NOT NULL,
    finished REAL,                          -- NULL: there is, or may be, more to do
    reason TEXT,                            -- how its last run ended
    cleared INTEGER NOT NULL DEFAULT 0,     -- 1: an old generation whose rows are gone
    added INTEGER NOT NULL DEFAULT 0,
    leased INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0,       -- charged to the budget
    bytes INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    UNIQUE (name, generation)
);

-- One start of a job by one process. It lives while its process holds the OS lock on
-- the file <frontier>.run-<token>.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs,
    token TEXT NOT NULL UNIQUE,
    pid INTEGER NOT NULL,
    started REAL NOT NULL,
    ended REAL,
    reason TEXT
);
-- Which runs must be looked at: those that have not ended.
CREATE INDEX runs_open ON runs (job) WHERE ended IS NULL;

-- Why rows failed or were dropped and why candidates were refused at the door.
CREATE TABLE reasons (
    job INTEGER NOT NULL REFERENCES jobs,
    kind TEXT NOT NULL CHECK (kind IN ('failed', 'dropped', 'refused')),
    reason TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (job, kind, reason)
) WITHOUT ROWID;

-- Pace groups. They belong to no job: two jobs on one site share its allowance.
CREATE TABLE hosts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    next_at REAL NOT NULL DEFAULT 0,        -- when it may be touched again
    delay REAL NOT NULL DEFAULT 0,          -- what the site itself asks for, each time
    held REAL NOT NULL DEFAULT 0,           -- left alone until then
    touched REAL NOT NULL DEFAULT 0,        -- last handed out
    in_flight INTEGER NOT NULL DEFAULT 0
);

-- The URLs of one job on one host. A queue stands for its best URL that is ready (head,
-- head_id) and for when its pace group opens (at), so that choosing what to fetch next
-- looks at one row a host.
CREATE TABLE queues (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs,
    host TEXT NOT NULL,
    pace INTEGER NOT NULL REFERENCES hosts,
    owner INTEGER NOT NULL DEFAULT 0,       -- a run, for rows that live no longer than it
    waiting INTEGER NOT NULL DEFAULT 0,     -- not leased
    ready INTEGER NOT NULL DEFAULT 0,       -- of these, not deferred
    pages INTEGER NOT NULL DEFAULT 0,       -- charged to the host's share of the budget
    retired INTEGER NOT NULL DEFAULT 0,     -- 1: the share is spent
    head REAL,                              -- rank of the best ready row
    head_id INTEGER,
    tie REAL NOT NULL DEFAULT 0,            -- tells equal heads apart, lower first
    aged INTEGER NOT NULL DEFAULT 0,        -- 1: tie is head_id, 0: tie is hosts.touched
    at REAL NOT NULL DEFAULT 0,             -- 0: open; else when it opens; 1e18: busy
    UNIQUE (job, host, pace, owner)
);
-- lease: the best head among the open queues of a job.
CREATE INDEX queues_open ON queues (job, owner, head, tie, head_id) WHERE at = 0 AND head IS NOT NULL;
-- lease, next_due: which queues open, and when.
CREATE INDEX queues_cooling ON queues (job, at) WHERE at > 0 AND head IS NOT NULL;
-- All queues that a touch of their pace group concerns: those of jobs that a run is at.
CREATE INDEX queues_pace ON queues (pace, job);

CREATE TABLE urls (
    id INTEGER PRIMARY KEY,                 -- grows with the time of discovery
    job INTEGER NOT NULL REFERENCES jobs,
    queue INTEGER NOT NULL REFERENCES queues,
    key BLOB NOT NULL,
    copy INTEGER NOT NULL DEFAULT 0,
    url TEXT NOT NULL,
    state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3), -- waiting, done, failed, dropped
    ready_at REAL NOT NULL DEFAULT 0,       -- waiting rows: 0 now; else not before; leased rows: the lease's end
    run INTEGER,                            -- leased by
    in_flight INTEGER NOT NULL DEFAULT 0,   -- 1: takes a place in its host's allowance
    charged INTEGER NOT NULL DEFAULT 0,     -- 1: the budget has paid for it
    attempts INTEGER NOT NULL DEFAULT 0,
    rank REAL NOT NULL DEFAULT 0,
    depth INTEGER NOT NULL DEFAULT 0,
    priority INTEGER NOT NULL DEFAULT 0,
    score REAL,                             -- NULL: 0.5, nothing is known
    seed INTEGER NOT NULL DEFAULT 0,
    discovered REAL NOT NULL,
    parent TEXT,
    request BLOB,                           -- NULL: an ordinary GET
    reason TEXT,
    owner INTEGER,                          -- a run, if the row lives no longer than it
    CHECK (run IS NULL OR (state = 0 AND ready_at > 0))
);
-- add, seen: one row for each key and copy.
CREATE UNIQUE INDEX urls_key ON urls (job, key, copy);
-- lease: the best row of a queue. Leased and deferred rows are not in it, so it is never walked.
-- The last two columns are always 0: with them SQLite need not look into the table.
CREATE INDEX urls_ready ON urls (queue, rank, id, state, ready_at) WHERE state = 0 AND ready_at = 0;
-- lease, once a budget is spent: what it has paid for already (retries and hops; few).
CREATE INDEX urls_charged ON urls (job, queue, rank, id) WHERE state = 0 AND ready_at = 0 AND charged = 1;
-- lease, next_due: which rows become ready, and when; a spent budget asks for charged ones.
CREATE INDEX urls_deferred ON urls (job, charged, ready_at)
    WHERE state = 0 AND ready_at > 0 AND run IS NULL;
-- lease: which leases of other runs have ended. Recovery: what a run has leased.
CREATE INDEX urls_leased ON urls (run, ready_at) WHERE run IS NOT NULL;
-- Recovery: what must go with a run.
CREATE INDEX urls_owned ON urls (owner) WHERE owner IS NOT NULL;
