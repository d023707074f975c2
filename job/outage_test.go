package job_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// refusing has a constraint refuse the messages of channels that match a condition, now or
// at COMMIT.
func (b *bundle) refusing(t tester, when, condition string) {
	t.Helper()
	b.exec(t, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'channel % is refused', NEW.channel_id USING ERRCODE = 'check_violation', CONSTRAINT = 'not_now', TABLE = 'messages'; END $$`)
	b.exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON belfry.messages `+when+` FOR EACH ROW WHEN (`+condition+`) EXECUTE FUNCTION refuse()`)
}

// A constraint that suddenly refuses everybody is waited out, and nobody is skipped for it:
// the job goes on when it is fixed, and is FAILED only when Retry.For is over.
func TestPoison_ConstraintThatRefusesEverybodyIsAnOutage(t *testing.T) {
	t.Parallel()
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, c.channels)
			b.refusing(t, c.when, c.condition)
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			config := config("r")
			config.MaxSkips = 0
			config.Retry = job.RetryConfig{Limit: 2, For: c.patience, Initial: time.Millisecond, Max: time.Millisecond}
			s := b.start(t, b.runnerWith(t, b.db.Pool, config, outbox.Types(b.who)))
			if c.patience == patience {
				b.eventually(t, `SELECT coalesce(last_error, '') LIKE '%everybody%is refused%' FROM belfry.jobs WHERE id = $1`, id)
				b.exec(t, `DROP TRIGGER refuse ON belfry.messages`)
			}
			b.eventually(t, `SELECT status IN ('PROCESSED', 'FAILED') FROM belfry.jobs WHERE id = $1`, id)
			s.wait(t)
			j := b.get(t, id)
			require.Zero(t, j.Skipped)
			require.Equal(t, c.written, j.RowsWritten, j.LastError)
			if c.patience != patience {
				require.Equal(t, job.Failed, j.Status)
				require.Regexp(t, "gave up after [0-9]+ tries in .*everybody's rows are refused alike.*23514", j.LastError)
			}
			b.requireAccounts(t, id)
		})
	}
}

// A constraint that is fixed while the fault is looked for costs nobody: the one who failed
// last is tried again before it is skipped. A sequence is not rolled back, so the constraint
// is fixed after each number of refusals in turn.
func TestPoison_ConstraintMendedDuringTheLookSkipsNobody(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"", "DEFERRABLE INITIALLY DEFERRED"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 300)
			b.exec(t, `CREATE SEQUENCE refusals`)
			b.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('refusals') <= (SELECT max_refusals FROM until) THEN
					RAISE EXCEPTION 'channel % is refused', NEW.channel_id USING ERRCODE = 'check_violation', CONSTRAINT = 'not_now', TABLE = 'messages';
				END IF;
				RETURN NULL; END $$`)
			b.exec(t, `CREATE TABLE until (max_refusals int); INSERT INTO until VALUES (0)`)
			b.exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON belfry.messages `+when+` FOR EACH ROW WHEN (NEW.channel_id > 2000) EXECUTE FUNCTION refuse()`)
			for refusals := 1; refusals <= 14; refusals++ {
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
	for name, bad := range map[string]func(int64) bool{
		"one":           func(id int64) bool { return id == 1230 },
		"beside":        func(id int64) bool { return id >= 1000 && id < 1500 },
		"the last ones": func(id int64) bool { return id > 2700 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 300)
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
