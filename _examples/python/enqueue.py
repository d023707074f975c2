"""Enqueues a job with psycopg (pip install "psycopg[binary]"), in the transaction that the
program's own rows are in.

    DATABASE_URL=postgres://… python3 enqueue.py
"""

import os

import psycopg

ENQUEUE = """
SELECT belfry.enqueue('push', 'operator_notice', %(title)s,
                      audience => belfry.audience_platforms('ios', 'android'),
                      idempotency_key => %(key)s)
"""

with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=10) as db:
    with db.transaction():
        # … the program's own statements …
        row = db.execute(ENQUEUE, {"title": "Maintenance at nine", "key": "maintenance-2026-11"}).fetchone()
    print(f"job {row[0]}")
