package job_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

// refusing has a constraint refuse the messages of channels that match a condition, now or
// at COMMIT.
func (b *bundle) refusing(t tester, when, condition string) {
	t.Helper()
	b.exec(t, `DROP TRIGGER IF EXISTS refuse ON belfry.message_rows`)
	b.exec(t, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'channel % is refused', NEW.channel_id USING ERRCODE = 'check_violation', CONSTRAINT = 'not_now', TABLE = 'messages'; END $$`)
	b.exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON belfry.message_rows `+when+` FOR EACH ROW WHEN (`+condition+`) EXECUTE FUNCTION refuse()`)
}

// A constraint that suddenly refuses everybody is waited out, and nobody is skipped for it:
// the job goes on when it is fixed, and is FAILED only when Retry.For is over.
func TestLong_PoisonConstraintThatRefusesEverybodyIsAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	for name, c := range map[string]struct {
		channels        int
		when, condition string
		patience        time.Duration
		written         int64
	}{
		"fixed":            {300, "", `NEW.channel_id > 2000`, patience, 300},
		"fixed, at COMMIT": {300, "DEFERRABLE INITIALLY DEFERRED", `NEW.channel_id > 2000`, patience, 300},
		"of a small job":   {20, "", `NEW.channel_id > 0`, patience, 20},
		"never fixed":      {300, "", `NEW.channel_id > 1000`, 20 * time.Millisecond, 100},
	} {
		inOrder(t, name, func(t *testing.T) {
			b.populate(t, c.channels)
			b.refusing(t, c.when, c.condition)
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			config := config("r")
			config.MaxSkips = 0
			config.Retry = job.RetryConfig{Limit: 2, For: c.patience, Initial: time.Millisecond, Max: time.Millisecond}
			s := b.start(t, b.runnerWith(t, b.db.Pool, config, outbox.Types(b.who)))
			if c.patience == patience {
				b.eventually(t, `SELECT coalesce(last_error, '') LIKE '%all recipients%is refused%' FROM belfry.jobs WHERE id = $1`, id)
				b.exec(t, `DROP TRIGGER refuse ON belfry.message_rows`)
			}
			b.eventually(t, `SELECT status IN ('PROCESSED', 'FAILED') FROM belfry.jobs WHERE id = $1`, id)
			s.wait(t)
			j := b.get(t, id)
			require.Zero(t, j.Skipped)
			require.Equal(t, c.written, j.RowsWritten, j.LastError)
			if c.patience != patience {
				require.Equal(t, job.Failed, j.Status)
				require.Regexp(t, "gave up after [0-9]+ tries in .*the rows of all recipients are rejected.*23514", j.LastError)
			}
			b.requireAccounts(t, id)
		})
	}
}

// A constraint that begins to refuse everybody when few are left is an outage as well, if
// somebody who has a row is refused by it now; skipped ones have none. Without that the ones
// that are left are to blame, however few they are.
func TestLong_PoisonConstraintThatRefusesTheRest(t *testing.T) {
	t.Parallel()
	check := func(condition string) string {
		return fmt.Sprintf(`ALTER TABLE belfry.message_rows DROP CONSTRAINT IF EXISTS not_now, ADD CONSTRAINT not_now CHECK (NOT (%s)) NOT VALID`, condition)
	}
	raise := func(statements string) string {
		return `CREATE FUNCTION plain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + statements + ` RETURN NEW; END $$;
			CREATE TRIGGER plain BEFORE INSERT ON belfry.message_rows FOR EACH ROW EXECUTE FUNCTION plain()`
	}
	const everybody = `RAISE EXCEPTION 'not %', NEW.channel_id;`
	b := setup(t, 150)
	for name, c := range map[string]struct {
		channels int
		before   string // is done at first
		then     string // is done when the first 100 are through
		skipped  int64
		outage   bool
	}{
		"everybody":                    {channels: 150, then: check("true"), outage: true},
		"everybody, by a plain RAISE":  {channels: 150, then: raise(everybody), outage: true},
		"everybody and the last one":   {channels: 101, then: check("true"), outage: true},
		"after some who were skipped":  {channels: 150, before: check("channel_id <= 50"), then: check("true"), skipped: 5, outage: true},
		"the rest":                     {channels: 115, then: check("channel_id > 1000"), skipped: 15},
		"the rest, by a plain RAISE":   {channels: 115, then: raise("IF NEW.channel_id > 1000 THEN " + everybody + " END IF;"), skipped: 15},
		"the rest and the first":       {channels: 115, before: check("channel_id <= 50 OR channel_id > 1000"), skipped: 20},
		"whose row is there":           {channels: 150, then: `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT max(id), 1500, now() FROM belfry.jobs`, skipped: 1},
		"one of one":                   {channels: 1, before: check("true"), skipped: 1},
		"two of three":                 {channels: 3, before: check("channel_id > 10"), skipped: 2},
		"one of three":                 {channels: 3, before: check("channel_id = 30"), skipped: 1},
		"two of two, each for himself": {channels: 2, before: raise("IF NEW.channel_id = 10 THEN " + everybody + " END IF;\n" + everybody), skipped: 2},
	} {
		inOrder(t, name, func(t *testing.T) {
			b.exec(t, `DROP TRIGGER IF EXISTS plain ON belfry.message_rows; DROP FUNCTION IF EXISTS plain; ALTER TABLE belfry.message_rows DROP CONSTRAINT IF EXISTS not_now`)
			b.populate(t, c.channels)
			if c.before != "" {
				b.exec(t, c.before)
			}
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			config := config("r")
			config.Chunk = governor.ChunkConfig{InitialRows: 100, MinRows: 100, MaxRows: 100, Target: config.Chunk.Target}
			config.Retry = job.RetryConfig{Limit: 2, For: 20 * time.Millisecond, Initial: time.Millisecond, Max: time.Millisecond}
			then := job.WithFailpoint(func(_ context.Context, point string) error {
				if point == job.PointBegun && c.then != "" && one[bool](t, b, `SELECT coalesce("cursor"::bigint, 0) >= 1000 FROM belfry.jobs WHERE id = $1`, id) {
					b.exec(t, c.then)
					c.then = ""
				}
				return nil
			})
			b.runDue(t, b.runnerWith(t, b.db.Pool, config, outbox.Types(b.who), then))
			j := b.get(t, id)
			require.Equal(t, c.skipped, j.Skipped, j.LastError)
			if c.outage {
				require.Equal(t, job.Failed, j.Status)
				require.Regexp(t, "gave up after [0-9]+ tries in .*the rows of all recipients are rejected", j.LastError)
			} else {
				require.Equal(t, job.Processed, j.Status, j.LastError)
			}
			b.requireAccounts(t, id)
		})
	}
}

// A shortage that is met while the others, or the recipient once more, are tried says nothing
// of anybody: the chunk is tried again, and nobody is skipped.
func TestPoison_ShortageInAProbeSkipsNobody(t *testing.T) {
	t.Parallel()
	const refuse = `RAISE check_violation USING MESSAGE = 'not now', CONSTRAINT = 'not_now';`
	b := setup(t, 150)
	b.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$`)
	b.exec(t, `CREATE TRIGGER refuse BEFORE INSERT ON belfry.message_rows FOR EACH ROW EXECUTE FUNCTION refuse()`)
	for name, c := range map[string]struct {
		trigger string
		status  job.Status
	}{
		"of the others": {`IF NEW.channel_id = 20 AND nextval('public.shortages') = 1 THEN RAISE serialization_failure; END IF; ` + refuse, job.Failed},
		"of the recipient, who is refused no more": {`IF NEW.channel_id = 20 THEN PERFORM nextval('public.probes'); END IF;
			IF NEW.channel_id = 10 AND NOT (SELECT is_called FROM public.probes) THEN ` + refuse + ` END IF;
			IF NEW.channel_id = 10 AND nextval('public.shortages') = 1 THEN RAISE serialization_failure; END IF;`, job.Processed},
	} {
		inOrder(t, name, func(t *testing.T) {
			b.exec(t, `DROP SEQUENCE IF EXISTS probes, shortages; CREATE SEQUENCE probes; CREATE SEQUENCE shortages`)
			b.exec(t, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+c.trigger+` RETURN NEW; END $$`)
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			config := config("r")
			config.Retry = job.RetryConfig{Limit: 2, For: 20 * time.Millisecond, Initial: time.Millisecond, Max: time.Millisecond}
			b.runDue(t, b.runnerWith(t, b.db.Pool, config, outbox.Types(b.who)))
			j := b.get(t, id)
			require.Equal(t, c.status, j.Status, j.LastError)
			require.Zero(t, j.Skipped)
			require.True(t, one[bool](t, b, `SELECT is_called FROM shortages`), "the shortage was met")
			b.requireAccounts(t, id)
		})
	}
}

// What a plain RAISE EXCEPTION of a user's trigger says of one person concerns that person
// alone; what one on the jobs says of a chunk is nobody's fault and fails the job.
func TestPoison_PlainRaiseOfATrigger(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.exec(t, `CREATE FUNCTION plain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no consent'; END $$`)
	b.exec(t, `CREATE TRIGGER plain BEFORE INSERT ON belfry.message_rows FOR EACH ROW WHEN (NEW.channel_id = 1230) EXECUTE FUNCTION plain()`)
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, slices.DeleteFunc(everyone(300), func(id int64) bool { return id == 1230 }))
	skips, err := b.jobs.Skips(t.Context(), id, "", 0)
	require.NoError(t, err)
	require.Len(t, skips, 1)
	require.Equal(t, "P0001", skips[0].SQLState)

	b.exec(t, `DROP TRIGGER plain ON belfry.message_rows`)
	b.exec(t, `CREATE TRIGGER plain BEFORE UPDATE OF "cursor" ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION plain()`)
	id = b.enqueue(t, job.Spec{Type: outbox.TypePush})
	tries := 0
	b.runDue(t, b.runner(t, "r", job.WithFailpoint(func(_ context.Context, point string) error {
		if point == job.PointWritten {
			tries++
		}
		return nil
	})))
	j := b.get(t, id)
	require.Equal(t, job.Failed, j.Status)
	require.Contains(t, j.LastError, "move cursor: ERROR: no consent (SQLSTATE P0001)")
	require.Zero(t, j.Skipped)
	require.Equal(t, 1, tries, "nobody is looked for")

	b.exec(t, `DROP TRIGGER plain ON belfry.jobs`)
	b.exec(t, `CREATE TRIGGER plain BEFORE UPDATE OF skipped ON belfry.jobs FOR EACH ROW WHEN (NEW.skipped < OLD.skipped) EXECUTE FUNCTION plain()`)
	_, err = b.jobs.RetrySkipped(t.Context(), skips[0].JobID, job.Act{}, nil)
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	j = b.get(t, skips[0].JobID)
	require.Equal(t, job.Failed, j.Status)
	require.Contains(t, j.LastError, "skip: ERROR: no consent (SQLSTATE P0001)")
	skips, err = b.jobs.Skips(t.Context(), j.ID, "", 0)
	require.NoError(t, err)
	require.Len(t, skips, 1)
	require.Equal(t, 1, skips[0].Attempts, "whoever was skipped is not to blame")
}

// A constraint that is fixed while the fault is looked for costs nobody: the one who failed
// last is tried again before it is skipped. A sequence is not rolled back, so the constraint
// is fixed after each number of refusals in turn.
func TestLong_PoisonConstraintFixedWhileItIsAskedSkipsNobody(t *testing.T) {
	t.Parallel()
	fixedAfter(t, 1, 5, 9, 14)
}

// Whenever it is fixed.
func TestFault_ConstraintFixedAtAnyRefusalSkipsNobody(t *testing.T) {
	t.Parallel()
	fixedAfter(t, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
}

// fixedAfter runs jobs whose rows a constraint refuses so many times.
func fixedAfter(t *testing.T, refused ...int) {
	t.Helper()
	b := setup(t, 300)
	b.exec(t, `CREATE SEQUENCE refusals`)
	b.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('public.refusals') <= (SELECT max_refusals FROM public.until) THEN
			RAISE EXCEPTION 'channel % is refused', NEW.channel_id USING ERRCODE = 'check_violation', CONSTRAINT = 'not_now', TABLE = 'messages';
		END IF;
		RETURN NULL; END $$`)
	b.exec(t, `CREATE TABLE until (max_refusals int); INSERT INTO until VALUES (0)`)
	for _, when := range []string{"", "DEFERRABLE INITIALLY DEFERRED"} {
		inOrder(t, when, func(t *testing.T) {
			b.exec(t, `DROP TRIGGER IF EXISTS refuse ON belfry.message_rows`)
			b.exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON belfry.message_rows `+when+` FOR EACH ROW WHEN (NEW.channel_id > 2000) EXECUTE FUNCTION refuse()`)
			for _, refusals := range refused {
				b.exec(t, `SELECT setval('refusals', 1, false)`)
				b.exec(t, `UPDATE until SET max_refusals = $1`, refusals)
				id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
				config := config("r")
				config.MaxSkips = 0
				b.runDue(t, b.runnerWith(t, b.db.Pool, config, outbox.Types(b.who)))
				j := b.get(t, id)
				require.Equal(t, job.Processed, j.Status, "%d refusals: %s", refusals, j.LastError)
				require.Equal(t, int64(300), j.RowsWritten, "%d refusals", refusals)
				b.requireAccounts(t, id)
			}
		})
	}
}

// Some whom a constraint refuses, alone or beside each other, are skipped at once.
func TestPoison_ConstraintThatRefusesSomeSkipsThem(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	for name, bad := range map[string]func(int64) bool{
		"one":           func(id int64) bool { return id == 1230 },
		"beside":        func(id int64) bool { return id >= 1000 && id < 1150 },
		"the last ones": func(id int64) bool { return id > 2850 },
	} {
		inOrder(t, name, func(t *testing.T) {
			var ids []int64
			for _, id := range everyone(300) {
				if bad(id) {
					ids = append(ids, id)
				}
			}
			b.refusing(t, "", fmt.Sprintf("NEW.channel_id BETWEEN %d AND %d", ids[0], ids[len(ids)-1]))
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			b.runDue(t, b.runner(t, "r"))
			b.requireDone(t, id, slices.DeleteFunc(everyone(300), bad))
			require.Equal(t, int64(len(ids)), b.get(t, id).Skipped)
			b.requireAccounts(t, id)
		})
	}
}
