package doctor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// found are the findings of a check.
func found(r *doctor.Report, check string) (list []doctor.Finding) {
	for _, f := range r.Findings {
		if f.Check == check {
			list = append(list, f)
		}
	}
	return list
}

// What only a process knows of itself is told by who runs the doctor.
func TestDoctor_LooksAtTheProcess(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Carrier.Transport = outbox.NoCarrier
	d.Env.Setup = operation.Setup{
		Configuration: "belfry.yaml", Database: "given by --database-url", Address: "db.example:5432", StaleAfter: time.Minute,
		Health: job.DefaultConfig().Load.Health,
	}
	r := d.Examined()
	require.True(t, r.OK, "there are warnings only")
	require.NoError(t, operation.Verdict(r))
	require.Equal(t, "belfry.yaml read", found(r, "configuration")[0].Detail.String())
	require.Contains(t, found(r, "connection")[0].Detail.String(), "db.example:5432, given by --database-url")
	require.Equal(t, "belfry.channels is empty", found(r, "channels")[0].Detail.String())
	require.Equal(t, "postgres; 0 messages QUEUED", found(r, "transport")[0].Detail.String())

	d.Env.Senders, d.Env.Media = []string{"fcm"}, []string{"push"}
	d.Env.Setup.Health.Enabled = false
	r = d.Examined()
	require.Equal(t, "no live relay has sender fcm", found(r, "senders")[0].Detail.String())
	require.Empty(t, found(r, "health checks"))
	require.Equal(t, doctor.HealthWarning, found(r, "installation")[0].Status)
	require.Contains(t, found(r, "installation")[0].Detail.String(), "no delivery.place is recorded")
	d.Env.Setup.Private = true
	require.Equal(t, doctor.HealthOK, found(d.Examined(), "installation")[0].Status)
}

// Relays whose place is not the database's deliver nothing, which the doctor says of its configuration.
func TestDoctor_ComparesPlaces(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Senders, d.Env.Media = []string{"fcm"}, []string{"push"}
	status := func(configured string) doctor.Finding {
		d.Env.Setup.Place = configured
		return found(d.Examined(), "installation")[0]
	}
	require.Equal(t, doctor.HealthFailed, status("production").Status, "the database has none")
	_, err := delivery.Adopt(t.Context(), d.Env.DB, "production", job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, doctor.HealthOK, status("production").Status)
	for _, wrong := range []string{"", "test"} {
		f := status(wrong)
		require.Equal(t, doctor.HealthFailed, f.Status)
		require.Contains(t, f.Detail.String(), fmt.Sprintf("delivery.place is %q, and the database is adopted for %q", wrong, "production"))
		require.Contains(t, f.Remedy.String(), `set delivery.place to "production"`)
	}
	d.Env.Senders = nil
	require.Equal(t, doctor.HealthOK, status("").Status, "it delivers nothing by itself")
}

// Who keeps others from writing is named with what ends it.
func TestDoctor_NamesWhoLocksTables(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.Empty(t, found(d.Examined(), "locks"))
	tx, err := d.Env.DB.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.events IN SHARE MODE`)
	require.NoError(t, err)
	warning := found(d.Examined(), "locks")[0]
	pid := tx.Conn().PgConn().PID()
	require.Contains(t, warning.Detail.String(), fmt.Sprintf("is locked by session %d of", pid))
	require.Equal(t, fmt.Sprintf("SELECT pg_terminate_backend(%d) ends the session", pid), warning.Remedy.String())
	require.NoError(t, tx.Rollback(t.Context()))
}

// A schedule whose row a session keeps locked does not fire, which the doctor says, unless it may be firing.
func TestDoctor_NamesWhoLocksSchedules(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.schedules (name, every, template) VALUES ('daily', '1 day', '{"type": "inbox", "category": "popular_content", "title": "x"}')`)
	tx, err := d.Env.DB.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.schedules FOR UPDATE`)
	require.NoError(t, err)
	require.Equal(t, doctor.HealthOK, found(d.Examined(), "schedules")[0].Status)
	d.Env.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	warning := found(d.Examined(), "schedules")[0]
	require.Contains(t, warning.Detail.String(), fmt.Sprintf("schedules do not fire while their rows are locked, by session %d of", tx.Conn().PgConn().PID()))
	require.NoError(t, tx.Rollback(t.Context()))
}

// A due job whose row a session locks is claimed by nobody, which the doctor says, with the session.
func TestDoctor_NamesWhoLocksDueJobs(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("push")
	require.Equal(t, "1 job due, none stale", found(d.Examined(), "jobs")[0].Detail.String())
	tx, err := d.Env.DB.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs FOR UPDATE`)
	require.NoError(t, err)
	warning := found(d.Examined(), "jobs")[0]
	require.Contains(t, warning.Detail.String(), fmt.Sprintf("due jobs are not claimed, because their rows are locked: job 1 by session %d of", tx.Conn().PgConn().PID()))
	require.NoError(t, tx.Rollback(t.Context()))
}

// Messages that are QUEUED for longer than delivery.requeue_after are counted, by queue.
func TestDoctor_CountsMessagesThatAreQueuedForLong(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Carrier.Transport, d.Env.Carrier.RequeueAfter = "redislist", 10*time.Minute
	d.Enqueue("push")
	d.Exec(`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until, last_push)
		SELECT n, 'redislist', 'r', now() + interval '1 minute', 2 FROM unnest('{activities,bulk}'::text[]) n`)
	d.Exec(`INSERT INTO belfry.pushes (queue, number, made_at) VALUES ('bulk', 1, now() - interval '11 minutes'), ('bulk', 2, now() - interval '9 minutes')`)
	d.Exec(`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, push)
		SELECT 1, g, now(), 'QUEUED', CASE WHEN g <= 3 THEN 1 ELSE 2 END FROM generate_series(1, 5) g`)
	warnings := func() (list []string) {
		for _, f := range found(d.Examined(), "transport") {
			list = append(list, f.Detail.String())
		}
		return list
	}
	require.Equal(t, []string{"3 messages of the queue bulk are QUEUED for longer than delivery.requeue_after (10m0s)"}, warnings())
	d.Exec(`UPDATE belfry.pushes SET made_at = now() - interval '11 minutes'`)
	require.Equal(t, []string{"5 messages of the queue bulk are QUEUED for longer than delivery.requeue_after (10m0s)"}, warnings())
	d.Exec(`UPDATE belfry.pushes SET made_at = now()`)
	require.Equal(t, []string{"redislist; 5 messages QUEUED"}, warnings())
	d.Exec(`INSERT INTO belfry.relays (name, transport, heartbeat_at) VALUES ('r', 'postgres', now())`)
	require.Equal(t, []string{"live relays use postgres, but delivery.transport is redislist here"}, warnings())
	remedy := func() string {
		list := found(d.Examined(), "transport")
		require.Contains(t, list[len(list)-1].Detail.String(), "no relay pushes")
		return list[len(list)-1].Remedy.String()
	}
	d.Exec(`UPDATE belfry.queues SET leads_until = now() - interval '1 minute'`)
	require.Contains(t, remedy(), "start a relay, which takes them back")
	d.Exec(`UPDATE belfry.relays SET transport = 'redislist'`)
	require.Contains(t, remedy(), "read why in the log of the relays, which are alive, or start another one, which takes them back")
}

// An empty relation is filled by who owns it: belfry imports into its own table only.
func TestDoctor_SaysWhoFillsAnEmptyRelation(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	empty := func() string {
		f := found(d.Examined(), "channels")
		require.NotEmpty(t, f)
		last := f[len(f)-1]
		require.Contains(t, last.Detail.String(), " is empty")
		return last.Remedy.String()
	}
	require.Equal(t, "fill it: `belfry channels import FILE.csv` or `belfry channels generate 300000`", empty())
	d.Exec(`CREATE TABLE members (id uuid PRIMARY KEY)`)
	require.NoError(t, d.Run("channels attach", "relation", "members", "external_id", "id"))
	require.Equal(t, "it follows public.members: insert users there; repair differences: `belfry channels verify`", empty())
	d.Exec(`CREATE VIEW users AS SELECT * FROM belfry.channels`)
	var err error
	d.Env.Channels, err = channels.New(channels.Config{Relation: "users"})
	require.NoError(t, err)
	require.Equal(t, "insert users into the tables of users, or set channels.relation to the relation that has them", empty())
}

// A check that fails makes the report a failure, and its text tells what to do.
func TestDoctor_FailsWithACheck(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`CREATE TABLE users (id uuid PRIMARY KEY, platform text); UPDATE belfry.installation SET database_oid = NULL`)
	var err error
	d.Env.Channels, err = channels.New(channels.Config{Relation: "users"})
	require.NoError(t, err)
	r := d.Examined()
	require.False(t, r.OK)
	require.EqualError(t, operation.Verdict(r), "4 checks failed, 3 warnings", "%+v", r.Findings)
	require.NoError(t, d.Run("doctor"))
	require.Regexp(t, `(?m)^failed   channels       users\.id: .*\n {23} -> `, d.Out)
	require.Regexp(t, `(?m)^failed   installation   this database is a copy or was moved`, d.Out)
	require.NotRegexp(t, `(?m)-> *$`, d.Out, "a check without a remedy has no line for it")

	require.NoError(t, d.Run("channels check"))
	require.Regexp(t, `(?m)^failed   users\.id: `, d.Out)
	require.NotContains(t, d.Out, "fulfills the contract")
	o, in := d.Input("channels check")
	out, err := o.Run(t.Context(), d.Env, in)
	require.NoError(t, err)
	require.EqualError(t, operation.Verdict(out), "users violates the contract: 3 faults")
}

// It tells where servers are and what a role lacks: that is for who may act.
func TestDoctor_IsForOperators(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Role = operation.Author
	require.ErrorContains(t, d.Run("doctor"), "doctor needs the role operator; this is author")
	d.Env.Role = operation.Operator
	require.NoError(t, d.Run("doctor"))
}

// What the database knows of the relation is brought in step where the process may do so, and
// of a relation that can be walked.
func TestChannelsCheck_BringsInStep(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Role = operation.Viewer
	require.NoError(t, d.Run("channels check"))
	require.Equal(t, "belfry.channels fulfills the contract\n", d.Out)
	require.JSONEq(t, `{"relation": "belfry.channels", "faults": [], "attached": null}`, d.JSON)
	asked := 0
	d.Env.InStep = func(context.Context) error { asked++; return nil }
	require.NoError(t, d.Run("channels check"))
	require.Equal(t, 1, asked)
	var err error
	d.Env.Channels, err = channels.New(channels.Config{Relation: "nowhere"})
	require.NoError(t, err)
	_ = d.Run("channels check")
	require.Equal(t, 1, asked, "not of what no job could walk")
}

// Who may create functions in a schema of the search_path can have them executed by belfry's logins.
func TestDoctor_WarnsOfRolesThatCreateInTheSearchPath(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	require.Empty(t, found(d.Examined(), "search_path"))
	role := d.DB.Role(t, `GRANT CREATE ON SCHEMA public TO :role`)
	list := found(d.Examined(), "search_path")
	require.Len(t, list, 1)
	require.Equal(t, doctor.HealthWarning, list[0].Status)
	require.Contains(t, list[0].Detail.String(), role.User+" may create functions in schema public")
	d.Exec(`GRANT CREATE ON SCHEMA public TO PUBLIC`)
	require.Contains(t, found(d.Examined(), "search_path")[0].Detail.String(), "PUBLIC may create functions in schema public")
}

// A full notification queue of the server, which other databases share, is reported with its remedy.
func TestDoctor_WarnsOfAFullNotificationQueue(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.Equal(t, doctor.HealthOK, found(d.Examined(), "notifications")[0].Status)
	d.Exec(`CREATE OR REPLACE FUNCTION belfry.rings() RETURNS boolean LANGUAGE sql VOLATILE RETURN false`)
	list := found(d.Examined(), "notifications")
	require.Len(t, list, 1)
	require.Equal(t, doctor.HealthWarning, list[0].Status)
	require.Contains(t, list[0].Remedy.String(), "pg_terminate_backend")
}

// A partition that will be missing is reported with its remedy, which creates it.
func TestDoctor_WarnsOfAMissingPartition(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.Equal(t, doctor.HealthOK, found(d.Examined(), "partitions")[0].Status)
	d.Exec(`DROP TABLE belfry.notifications_1`)
	list := found(d.Examined(), "partitions")
	require.Equal(t, doctor.HealthWarning, list[0].Status)
	_, sql, _ := strings.Cut(list[0].Remedy.String(), ": ")
	d.Exec(sql)
	require.Equal(t, doctor.HealthOK, found(d.Examined(), "partitions")[0].Status)
}
