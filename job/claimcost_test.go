package job_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// situation is one in which many jobs wait: what loads them, what the claim may look at
// of the table, and whether there is one to claim.
type situation struct {
	name   string
	load   []string
	rows   int
	claims bool
}

var waiting = []situation{
	{"all due", []string{`SELECT many(@n)`}, 10, true},
	{"the lane is busy", []string{`SELECT many(@n)`, `SELECT busy('default')`}, 10, false},
	{"the lane is paused", []string{`SELECT many(@n)`, `INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('default', now(), 'x')`}, 10, false},
	{"all scheduled for later", []string{`SELECT many(@n, at => now() + interval '1 day')`}, 10, false},
	{"one due behind more urgent ones that are scheduled for later", []string{
		`SELECT many(@n, at => now() + interval '1 day', urgency => 9)`, `SELECT many(1)`,
	}, 10, true},
	{"one due behind more urgent ones of a type that nobody here knows", []string{
		`SELECT many(@n, kind => 'letter', urgency => 9)`, `SELECT many(1)`,
	}, 10, true},
	{"one due in the last of lanes that are busy, paused or later", []string{
		`SELECT many(@n / 9, at => now() + g % 3 * interval '1 day', lane => 'l' || g) FROM generate_series(1, 9) g`,
		`UPDATE belfry.jobs SET priority = id % 7`,
		`INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('l3', now(), 'x'), ('l6', now(), 'x')`,
		`SELECT busy('l9')`,
		`SELECT many(1, lane => 'z')`,
	}, 100, true},
	{"one due behind more urgent ones that wait for approval", []string{
		`ALTER TABLE belfry.jobs ALTER needs_approval SET DEFAULT true`, `SELECT many(@n, urgency => 9)`,
		`ALTER TABLE belfry.jobs ALTER needs_approval SET DEFAULT false`, `SELECT many(1)`,
	}, 10, true},
}

// manyJobs loads jobs without their triggers, which are not what is looked at, and
// makes one RUNNING.
const manyJobs = `
ALTER TABLE belfry.jobs SET (autovacuum_enabled = off);
CREATE FUNCTION many(n bigint, at timestamptz DEFAULT now() - interval '1 hour', kind text DEFAULT 'inbox',
                     urgency integer DEFAULT 0, lane text DEFAULT 'default') RETURNS void LANGUAGE sql AS $$
    INSERT INTO belfry.jobs (id, type, category, title, lane, priority, schedule_at, route)
    SELECT nextval('belfry.jobs_id_seq'), $3, 'operator_notice', 'many', $5, $4, $2 + g * interval '1 millisecond', '{}' FROM generate_series(1, $1) g
$$;
CREATE FUNCTION busy(lane text) RETURNS bigint LANGUAGE sql AS $$
    UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now()
     WHERE id = (SELECT max(j.id) FROM belfry.jobs j WHERE j.lane = $1) RETURNING id
$$;`

// knowledge is what the planner may know of the table, and how many jobs to load.
type knowledge struct {
	name          string
	jobs          int
	before, after string // before and after the jobs are loaded
}

var statistics = []knowledge{
	{"never analysed", 2_000, "", ""},
	{"analysed when one of three ran", 2_000, `SELECT many(3, lane => 'other'), busy('other'); ANALYZE belfry.jobs`, ""},
	{"analysed when nothing waited", 2_000, `SELECT many(1000, lane => 'other');
		UPDATE belfry.jobs SET status = 'PROCESSED', started_at = now(), finished_at = now(); VACUUM ANALYZE belfry.jobs`, ""},
	{"vacuumed and analysed", 2_000, "", `VACUUM ANALYZE belfry.jobs`},
}

// The number of rows that a claim and a run's check for a more urgent job read does not depend on the number of pending jobs, on the reason why they wait, or on the planner's statistics.
func TestLong_ClaimReadsAFewRowsHoweverManyJobsWait(t *testing.T) {
	t.Parallel()
	claims(t, waiting, statistics, func(plans string) { dbtest.Golden(t, "testdata/claim.golden", plans) })
}

// A hundred thousand wait, and the plans are the same.
func TestFault_ClaimReadsAFewRowsOfAHundredThousand(t *testing.T) {
	t.Parallel()
	most := statistics[0]
	most.jobs = 100_000
	claims(t, waiting[:4], []knowledge{most}, func(plans string) {
		all, err := os.ReadFile("testdata/claim.golden")
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(all), plans), plans)
	})
}

// claims has jobs claimed in each situation, and gives the plans of a table that was
// never analysed to be compared.
func claims(t *testing.T, situations []situation, statistics []knowledge, compare func(plans string)) {
	t.Helper()
	plans, version := map[string]string{}, 0 // of the one that was never analysed
	t.Cleanup(func() {                       // when every situation is over
		if version != 15 { // each version words its plans a little differently
			return
		}
		var out strings.Builder
		for _, s := range situations {
			out.WriteString("# " + s.name + "\n" + plans[s.name])
		}
		compare(out.String())
	})
	for _, known := range statistics {
		t.Run(known.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			_, err := db.Pool.Exec(t.Context(), manyJobs)
			require.NoError(t, err)
			var major int
			require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int / 10000`).Scan(&major))
			for _, s := range situations {
				claim := s.claim(t, db, known)
				if known.name == "never analysed" {
					plans[s.name] = claim.String()
					version = major
				}
			}
		})
	}
}

// claim has a job claimed, if there is one, and returns the plan of the claim. It begins with
// an empty table of which the planner knows nothing, as in a new database.
func (s situation) claim(t *testing.T, db *dbtest.DB, known knowledge) plan {
	t.Helper()
	name := s.name + ", " + known.name
	script := append([]string{
		`TRUNCATE belfry.jobs, belfry.lanes RESTART IDENTITY CASCADE`, `DELETE FROM pg_statistic WHERE starelid = 'belfry.jobs'::regclass`,
		`ALTER TABLE belfry.jobs DISABLE TRIGGER USER`,
	}, strings.Split(known.before, ";")...)
	script = append(append(script, s.load...), known.after, `ALTER TABLE belfry.jobs ENABLE TRIGGER USER`)
	for _, sql := range script {
		_, err := db.Pool.Exec(t.Context(), strings.ReplaceAll(sql, "@n", strconv.Itoa(known.jobs)))
		require.NoError(t, err, "%s: %s", name, sql)
	}
	types := []string{"inbox", "push"}
	look := explained(t, db, "JobsSnapshot", pgx.StrictNamedArgs{"runner": "r2", "types": types, "lanes": nil, "stale_after": "30s"})
	require.LessOrEqual(t, look.looked("jobs"), 2*s.rows, "%s: %s", name, look)
	require.LessOrEqual(t, look.Hit+look.Read, 4*s.rows+20, "%s: %s", name, look)
	claim := explained(t, db, "JobClaim", pgx.StrictNamedArgs{"runner": "r2", "types": types, "lanes": nil, "pid": 1})
	require.LessOrEqual(t, claim.looked("jobs"), s.rows, "%s: %s", name, claim)
	require.Equal(t, s.claims, claim.Rows == 1, "%s: %s", name, claim)
	require.LessOrEqual(t, claim.Hit+claim.Read, 4*s.rows+220, "%s: %s", name, claim) // with the triggers of the claimed job, and the lock that claims share
	expire := explained(t, db, "JobExpire", pgx.StrictNamedArgs{"limit": 1000})
	require.Zero(t, expire.looked("jobs"), "%s: %s", name, expire)
	var id int64
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT busy(lane) FROM belfry.jobs WHERE status = 'PENDING' ORDER BY awaits_approval, id DESC LIMIT 1`).Scan(&id))
	begin := explained(t, db, "RunBegin", pgx.StrictNamedArgs{"application": "a", "timeout_ms": "100", "lock_timeout_ms": "80", "async_commit": true, "id": id, "types": types})
	require.LessOrEqual(t, begin.looked("jobs"), s.rows, "%s: %s", name, begin)
	require.LessOrEqual(t, begin.Hit+begin.Read, 4*s.rows, "%s: %s", name, begin)
	return claim
}

// A runner that has polled a small table for long keeps no plan of that time: a second
// later a poll scans no table that has grown.
func TestClaim_KeepsNoPlanOfASmallTable(t *testing.T) {
	t.Parallel()
	for _, known := range statistics {
		t.Run(known.name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, dbtest.New(t), 0)
			b.exec(t, manyJobs)
			b.exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER USER`)
			for _, sql := range strings.Split(known.before, ";") {
				b.exec(t, sql)
			}
			b.exec(t, `INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('default', now(), 'x')`)
			c := b.db.Pool.Config()
			c.MaxConns = 1
			pool, err := pgxpool.NewWithConfig(t.Context(), c)
			require.NoError(t, err)
			b.last = append(b.last, pool.Close)
			r := b.runnerWith(t, pool, config("poller"), outbox.Types(b.who))
			b.exec(t, `ALTER TABLE belfry.jobs ENABLE TRIGGER USER`)
			for range 10 { // from the sixth on a prepared statement may keep its plan
				b.runDue(t, r)
			}
			b.exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER USER`)
			b.exec(t, `SELECT many($1)`, known.jobs)
			b.exec(t, `ALTER TABLE belfry.jobs ENABLE TRIGGER USER`)
			scanned := func() (n int64) {
				_, err := pool.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
				require.NoError(t, err)
				require.NoError(t, pool.QueryRow(t.Context(), `SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = 'belfry.jobs'::regclass`).Scan(&n))
				return n
			}
			for began, was := time.Now(), scanned(); ; was = scanned() {
				b.runDue(t, r)
				if scanned()-was < int64(known.jobs) {
					break
				}
				require.Less(t, time.Since(began), patience, "rows of sequential scans")
			}
		})
	}
}

// plan is what EXPLAIN (ANALYZE) tells of one node.
type plan struct {
	Type     string  `json:"Node Type"`
	Name     string  `json:"Subplan Name"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []plan  `json:"Plans"`
}

// looked is how many rows of a table the nodes up to this one looked at.
func (p plan) looked(table string) (n int) {
	if p.Relation == table && strings.HasSuffix(p.Type, "Scan") {
		n = int((p.Rows + p.Removed) * p.Loops)
	}
	for _, below := range p.Plans {
		n += below.looked(table)
	}
	return n
}

func (p plan) String() string { return p.indented("") }

func (p plan) indented(in string) string {
	if p.Loops == 0 {
		return ""
	}
	s := in + p.Type
	for _, more := range []string{p.Relation, p.Index, p.Name} {
		if more != "" {
			s += ", " + more
		}
	}
	s += fmt.Sprintf(": %g rows, %g removed, %g times\n", p.Rows, p.Removed, p.Loops)
	for _, below := range p.Plans {
		s += below.indented(in + "  ")
	}
	return s
}

// explained executes a statement, which is rolled back, planned for this one time,
// and returns what it did.
func explained(t *testing.T, db *dbtest.DB, name string, args pgx.StrictNamedArgs) plan {
	t.Helper()
	var text string
	errRollback := errors.New("roll back")
	conn, err := db.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for range 2 { // the first execution of a connection reads catalogs, too
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+job.Statement(name), args).Scan(&text); err != nil {
				return err
			}
			return errRollback
		})
		require.ErrorIs(t, err, errRollback)
	}
	var roots []struct{ Plan plan }
	require.NoError(t, json.Unmarshal([]byte(text), &roots))
	return roots[0].Plan
}
