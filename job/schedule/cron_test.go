package schedule

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// crons are cron expressions with what the grammar says of them.
var crons = map[string]bool{
	"@daily": true, "@hourly": true, "@weekly": true, "@monthly": true, "@yearly": true,
	"@annually": true, "@midnight": true, "@Daily": true, " @daily\t": true, "@daily x": false, "@every 1h": false, "@reboot": false, "": false, "* * * *": false, "* * * * * *": false,
	"* * * * *": true, "*  *   * * *": true, " * * * * *": true, "* * * * * ": true, "31 0 31 * ": false, "*\t* * * *": true, "*\n* * * *": false,
	"0 9 * * *": true, "59 23 31 12 6": true, "60 * * * *": false, "61 * * * *": false, "* 24 * * *": false,
	"* * 0 * *": false, "* * 32 * *": false, "* * * 0 *": false, "* * * 13 *": false, "* * * * 7": true, "* * * * 8": false, "* * * * 5-7": true, "* * * * fri-7/2": true, "* * * * 7-1": false, "* * * * 7/2": false, "* * * * 5-7/0": false, "* * * * 07": true, "* * * * 1-7/9": false,
	"*/5 * * * *": true, "*/0 * * * *": false, "5/15 * * * *": true, "0-10/3 * * * *": true, "*/99 * * * *": false, "*/90 * * * *": false, "0 9 */100 * *": false, "0 */24 * * *": false, "*/59 * * * *": true, "1-3/5 * * * *": false, "59/1 * * * *": true,
	"10-5 * * * *": false, "5-5 * * * *": true, "1-2-3 * * * *": false, "*-5 * * * *": false, "-5 * * * *": false,
	"1,2,3 * * * *": true, "1,,2 * * * *": false, ",1 * * * *": false, "1, * * * *": false, ", * * * *": false,
	"0 0 * jan *": true, "0 0 * JAN-mar *": true, "0 0 * mon *": false, "0 0 * * mon": true, "0 0 * * MON-Fri/2": true,
	"0 0 * * fri-mon": false, "0 0 * * jan": false, "jan * * * *": false, "0 0 * january *": false, "0 0 * * 1-fri": true,
	"007 * * * *": true, "00059 * * * *": false, "? * * * *": false, "0 0 L * *": false,
	"0 0 30 2 *": false, "0 0 29 2 *": true, "0 0 31 4,6 *": false, "0 0 31 4-6 *": true, "0 0 31 2/2 *": true, "0 0 31 4/5 *": false,
	"0 0 31 2 1": true, "0 0 31 2 */2": true, "0 0 31 2 */1": false, "0 0 31 2 1,*": false, "0 0 31 2 0-6": true, "0 0 *,31 2 *": true,
	"0 0 31/2 2 *": false, "0 0 29-31 2 *": true,
}

// cronProblems asks the database what is wrong with each expression; "": nothing.
func cronProblems(t require.TestingT, db *dbtest.DB, list []string) []string {
	rows, err := db.Pool.Query(context.Background(), `SELECT coalesce(belfry.cron_problem(u.cron), '') FROM unnest($1::text[]) WITH ORDINALITY u (cron, n) ORDER BY u.n`, list)
	require.NoError(t, err)
	problems, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return problems
}

func TestParseCron_AgreesWithTheDatabaseOnTheCorpus(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var list []string
	for text := range crons {
		list = append(list, text)
	}
	for i, problem := range cronProblems(t, db, list) {
		_, err := parseCron(list[i], time.UTC)
		require.Equal(t, crons[list[i]], err == nil, "parseCron(%q): %v", list[i], err)
		require.Equal(t, crons[list[i]], problem == "", "belfry.cron_problem(%q): %s", list[i], problem)
	}
}

// Whatever is put together from the grammar's own pieces, both say the same of it.
func TestParseCron_AgreesWithTheDatabaseOnAnything(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"*", "0", "1", "2", "4", "6", "7", "12", "13", "23", "24", "28", "29", "30", "31", "32", "59", "60", "feb", "Apr", "sun", "SAT", "xxx", "", "*-3"}),
		rapid.StringMatching(`[0-9]{1,5}`))
	part := rapid.Custom(func(t *rapid.T) string {
		text := value.Draw(t, "value")
		if rapid.IntRange(0, 2).Draw(t, "range") == 0 {
			text += "-" + value.Draw(t, "end")
		}
		if rapid.IntRange(0, 2).Draw(t, "step") == 0 {
			text += "/" + rapid.SampledFrom([]string{"0", "1", "01", "2", "5", "99", "", "x"}).Draw(t, "by")
		}
		return text
	})
	// Most fields are plain, or nearly no expression would be allowed.
	field := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "parts"), ",")
		case 1:
			return rapid.SampledFrom([]string{"31", "30", "29-30", "2", "4,6", "2-4/2", "*/1", "1-6"}).Draw(t, "days")
		default:
			return rapid.SampledFrom([]string{"*", "*", "1", "2"}).Draw(t, "plain")
		}
	})
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(field, 4, 6).Filter(func(f []string) bool { return len(f) == 5 || f[0] == "1" }).Draw(t, "fields"), " ")
		}), 20, 20).Draw(t, "expressions")
		for i, problem := range cronProblems(t, db, list) {
			_, err := parseCron(list[i], time.UTC)
			require.Equal(t, err == nil, problem == "", "%q: parseCron: %v, belfry.cron_problem: %s", list[i], err, problem)
			if err == nil {
				allowed++
			}
		}
	})
	require.Positive(t, allowed)
}

// 7 is Sunday, as crontabs have it, and so is the end of a range.
func TestCron_SevenIsSunday(t *testing.T) {
	t.Parallel()
	for text, same := range map[string]string{"0 9 * * 7": "0 9 * * 0", "0 9 * * 5-7": "0 9 * * 5,6,0", "0 9 * * mon-7/2": "0 9 * * 1,3,5,0", "0 9\t*  * 7,2 ": "0 9 * * 0,2", "@midnight": "@daily"} {
		a, err := parseCron(text, time.UTC)
		require.NoError(t, err)
		b, err := parseCron(same, time.UTC)
		require.NoError(t, err)
		require.Equal(t, b.spec, a.spec, text)
	}
	_, err := parseCron("*/90 * * * *", time.UTC)
	require.ErrorContains(t, err, `the step of "*/90" in the minute is longer than its range, 0 to 59`)
}
