package demo

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations"
)

// D3: jobs of anybody else, and a schema that no demo made, stay as they are.
func TestStage_TouchesNothingItDidNotMake(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, b *bundle){
		"a schema of the user": func(t *testing.T, b *bundle) {
			t.Helper()
			_, err := migrations.Up(t.Context(), b.db.DSN)
			require.NoError(t, err)
		},
		"a job of the user in the demo's schema": func(t *testing.T, b *bundle) {
			t.Helper()
			b.exec(t, queries.stageClear)
			_, err := migrations.Up(t.Context(), b.db.DSN)
			require.NoError(t, err)
			b.exec(t, `INSERT INTO belfry.jobs (type, category, title, requested_by) VALUES ('inbox', 'operator_notice', 'mine', 'me')`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			prepare(t, b)
			b.exec(t, `CREATE TABLE belfry.precious ()`)
			report, err := Run(t.Context(), b.config)
			require.ErrorIs(t, err, errNotOurs)
			require.False(t, report.OK)
			require.Equal(t, []string{err.Error()}, report.Problems)
			b.exec(t, `SELECT FROM belfry.precious`)
		})
	}
}

// What an act adds for the processes that it starts counts more than what all have.
func TestStage_WhatAnActAddsCounts(t *testing.T) {
	t.Parallel()
	s := &stage{extra: []string{"BELFRY_LOG_LEVEL=error"}, Config: Config{Environ: []string{"BELFRY_LOG_LEVEL=debug"}}}
	env := (&exec.Cmd{Env: s.environment("demo")}).Environ()
	require.Contains(t, env, "BELFRY_LOG_LEVEL=error")
	require.NotContains(t, env, "BELFRY_LOG_LEVEL=info")
}

// A demo after a demo, finished or not, begins anew.
func TestStage_ClearsWhatADemoLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, queries.stageClear) // killed before it migrated
	s := newStage(b.config, new(Report))
	require.NoError(t, s.open(t.Context()))
	require.NoError(t, s.enqueue(t.Context(), "NULL"))
	_, err := s.pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, requested_by) VALUES ('inbox', 'operator_notice', 'by its console', 'visitor'), ('inbox', 'operator_notice', 'by its timetable', 'schedule demo-hourly')`)
	require.NoError(t, err)
	require.NoError(t, s.close(t.Context()))

	s = b.stage(t)
	var n int
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.jobs`).Scan(&n))
	require.Zero(t, n)
}

func TestStage_OneDemoAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.stage(t)
	_, err := Run(t.Context(), b.config)
	require.ErrorIs(t, err, errBusy)
	require.NoError(t, s.enqueue(t.Context(), "NULL"), "the first one's schema is still there")
}

func TestStage_MakesItsDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	name := b.db.Name[:24] + "_demo" // the prefix has it dropped some day if this test cannot
	b.config.Database = name
	t.Cleanup(func() {
		_, err := b.db.Pool.Exec(context.WithoutCancel(t.Context()), `DROP DATABASE IF EXISTS `+pgx.Identifier{name}.Sanitize())
		require.NoError(t, err)
	})
	s := newStage(b.config, new(Report))
	require.NoError(t, s.open(t.Context()))
	var got string
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT current_database()`).Scan(&got))
	require.Equal(t, name, got)
	require.NoError(t, s.close(t.Context()))
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	err := Config{Channels: 9_999, Database: "Robert'); DROP", Screen: os.Stderr}.Validate()
	require.EqualError(t, err, `channels: 9999 is not allowed; allowed values: 10000 to 10000000
database: "Robert'); DROP" is not allowed; allowed values: up to 63 of a-z, 0-9 and _, not beginning with a digit
server, dsn, executable and screen are required`)
}
