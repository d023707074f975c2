package migrations_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

// Texts of before with two braces in them were no templates: they are sent as they were
// written, their jobs can be controlled, and going back restores them word for word. In
// what is shown in the app nothing changes.
func TestMigrations_BracesOfBeforeAreSentAsTheyWere(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	exec, one := asker(t, db)
	_, err := migrations.Down(ctx, db.DSN, 7)
	require.NoError(t, err)
	long := "{{" + strings.Repeat("x", 198)
	texts := []string{`x {{ y`, `b {{name}} {{locale}}`, `{{{"{{"}}}`, `none`, long}
	for i, text := range texts {
		exec(`INSERT INTO belfry.jobs (type, category, title, body, lane) VALUES ('push', 'operator_notice', $1, $1, 'l-' || $2::int)`, text, i)
	}
	exec(`INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'in {{ app')`)
	exec(`INSERT INTO belfry.job_revisions (job_id, revision, "cursor", title, body, data, audience, edited_by, reason) VALUES
		(1, 1, '3', 'was {{', 'so {{', '{}', '{"kind": "everyone"}', 'me', ''), (6, 1, '3', 'was {{', 'so {{', '{}', '{"kind": "everyone"}', 'me', '')`)
	words := `SELECT string_agg(title || '|' || body, E'\n' ORDER BY id) FROM belfry.jobs`
	before, events, revised := one(words), one(`SELECT count(*)::text FROM belfry.job_events`), one(`SELECT string_agg(title || body, ' ' ORDER BY job_id) FROM belfry.job_revisions`)

	_, err = migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Equal(t, `x {{"{{"}} y`, one(`SELECT title FROM belfry.jobs WHERE id = 1`))
	require.Equal(t, `b {{"{{"}}name}} {{"{{"}}locale}}`, one(`SELECT body FROM belfry.jobs WHERE id = 2`))
	require.Equal(t, `was {{"{{"}}so {{"{{"}}`, one(`SELECT title || body FROM belfry.job_revisions WHERE job_id = 1`))
	require.Equal(t, "0", one(`SELECT count(*)::text FROM belfry.jobs WHERE id < 5 AND (belfry.template_problem(title) IS NOT NULL OR belfry.template_problem(body) IS NOT NULL)`))
	require.Equal(t, long, one(`SELECT title FROM belfry.jobs WHERE id = 5`), "there is no room for it")
	require.Equal(t, "in {{ app was {{", one(`SELECT j.title || ' ' || r.title FROM belfry.jobs j JOIN belfry.job_revisions r ON r.job_id = j.id WHERE j.id = 6`))
	require.Equal(t, events, one(`SELECT count(*)::text FROM belfry.job_events`), "nobody edited")
	require.Equal(t, "7", one(`SELECT priority::text FROM belfry.set(5, '{"priority": 7}')`), "what is not changed is not checked")
	require.Equal(t, "7", one(`SELECT priority::text FROM belfry.set(6, '{"priority": 7}')`))
	_, err = db.Pool.Exec(ctx, `SELECT belfry.set(5, '{"body": "{{"}')`)
	require.ErrorContains(t, err, "belfry.jobs.title")

	_, err = migrations.Down(ctx, db.DSN, 7)
	require.NoError(t, err)
	require.Equal(t, before, one(words))
	require.Equal(t, revised, one(`SELECT string_agg(title || body, ' ' ORDER BY job_id) FROM belfry.job_revisions`))
}
