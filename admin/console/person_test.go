package console_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
)

// exec runs SQL.
func (h *house) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := h.db.Pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// headings are those of a page's sections.
func (p page) headings() (all []string) {
	p.each(func(n *html.Node) {
		if n.Data == "h2" && n.FirstChild != nil {
			all = append(all, n.FirstChild.Data)
		}
	})
	return all
}

// A person is found by external id, and from wherever a channel's id is shown.
func TestConsole_APersonHasAPage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, location) VALUES (3, 'kim@example.org', 'ios', point(126.98, 37.57))`)
	var id int64
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'Hello') RETURNING id`).Scan(&id))
	h.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = $1`, id)
	h.exec(t, `UPDATE belfry.jobs SET "cursor" = '3', bound = '3', chunks = 1, channels_read = 1, channels_matched = 1, rows_written = 1 WHERE id = $1`, id)
	h.exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
	h.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, reason, last_error) VALUES ($1, 3, now(), 'DEAD', 'permanent', 'no such token')`, id)
	h.exec(t, `SELECT belfry.send(3, 'activity', 'Lee likes it')`)
	h.enqueue(t, "Later")

	b := h.as(t, "operator")
	const person = "/channels/show?channel=3"
	p := b.get(t, "/channels/show")
	require.Equal(t, http.StatusOK, p.status, "it asks whom, and finds no fault yet")
	require.Contains(t, p.source, `name="external_id"`)
	require.Contains(t, p.text, "Type the external id of a person")
	require.NotContains(t, p.source, `role="alert"`)
	require.Contains(t, b.get(t, "/").links(), "/channels/show", "it is among the pages")

	p = b.get(t, "/channels/show?external_id=kim%40example.org")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.source, "<h1>Person kim@example.org</h1>")
	require.Equal(t, []string{"Will get", "Got and did not get", "Opt-outs"}, p.headings())
	require.Contains(t, p.part("History"), "Hello Job "+text.Int(id)+" · push · operator_notice Failed")
	require.Contains(t, p.part("History"), "The provider refused it permanently (push).")
	require.Contains(t, p.part("History"), "no such token")
	require.Contains(t, p.part("Will get"), "Later Job 2 · inbox · operator_notice Will get it")
	require.Contains(t, p.part("Will get"), "The person is in the audience, and the turn has not come.")
	require.Contains(t, p.part("Will get"), "Lee likes it Single message · activity Will get it")
	require.Contains(t, p.links(), "/jobs/"+text.Int(id))
	require.NotContains(t, p.links(), "/jobs/-1", "a single message is no job")
	require.Contains(t, p.links(), "/dead-letters/show?channel=3&job="+text.Int(id))
	require.Contains(t, p.actions(), "/channels/opt-out")
	require.NotContains(t, p.links(), "/channels/forget?_back=%2Fchannels%2Fshow&external_id=kim%40example.org", "which an operator may not")
	require.Contains(t, h.as(t, "admin").get(t, person).links(), "/channels/forget?_back=%2Fchannels%2Fshow&channel=3")
	require.Contains(t, b.get(t, person+"&limit=1").links(), "/channels/show?before=0%3A-2&channel=3&limit=1", "the next page")
	require.NotContains(t, b.get(t, person+"&_show=got").part("History"), "Hello")
	require.Contains(t, b.get(t, person+"&_show=missed").part("History"), "Hello")
	require.Contains(t, b.get(t, "/channels/show?_form=csv&channel=3").source, "job_id,type,status")
	for _, nobody := range []string{"channel=99", "external_id=nobody"} {
		p = b.get(t, "/channels/show?"+nobody)
		require.Equal(t, http.StatusNotFound, p.status)
		require.Contains(t, p.text, "No person has this id.")
		require.Contains(t, p.source, `name="external_id"`)
	}
	require.Equal(t, http.StatusUnprocessableEntity, b.get(t, person+"&limit=0").status)
	require.Equal(t, http.StatusUnprocessableEntity, b.get(t, person+"&external_id=kim").status)

	viewer := h.as(t, "viewer").get(t, person)
	require.Contains(t, viewer.source, "<h1>Person 3</h1>")
	require.Contains(t, viewer.part("History"), "The provider refused it permanently")
	for _, words := range []string{"kim@example.org", "Lee likes it", "no such token", "masked", "/dead-letters", "/channels/opt-out", "/channels/forget", "37.57"} {
		require.NotContains(t, viewer.source, words)
	}

	for _, at := range []string{"/jobs/" + text.Int(id) + "/recipients", "/dead-letters"} {
		require.Contains(t, b.get(t, at).links(), person, at)
	}
	require.Contains(t, b.get(t, "/dead-letters").links(), "/jobs/"+text.Int(id))
}

// The attempts of a message that was sent before a correction of its job have the text that was sent.
func TestPerson_AttemptsHaveTheTextThatWasSent(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.deliveredPercent(t)
	h.exec(t, `INSERT INTO belfry.job_revisions (job_id, revision, "cursor", title, body, data, audience, edited_by)
		SELECT id, 1, "cursor", title, 'Sale until Friday', data, audience, 'ann' FROM belfry.jobs WHERE id = $1`, id)
	dbtest.Past(t, h.db.Pool, `UPDATE belfry.jobs SET revision = 1, body = 'Sale until Monday' WHERE id = $1`, id)
	h.exec(t, `UPDATE belfry.message_rows SET revision = 1 WHERE job_id = $1 AND channel_id = 2`, id)
	b := h.as(t, "operator")
	for channel, want := range map[string]string{"1": "body Sale until Friday sent text from before the correction of the job", "2": "body Sale until Monday sent text the corrected one"} {
		attempts := "/dead-letters/show?channel=" + channel + "&job=" + id
		require.Contains(t, b.get(t, "/channels/show?channel="+channel).links(), attempts)
		require.Contains(t, b.get(t, attempts).text, want)
	}
}

// Opt-outs are added and removed on the page, and an erased person is on no page.
func TestPerson_ActsInPlace(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (3, 'kim', 'ios')`)
	h.exec(t, `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256, sender, error) VALUES (3, 'push', sha256('x'), 'fcm', 'gone')`)
	b := h.as(t, "admin")
	const at = "/channels/show?external_id=kim"
	p := b.get(t, at)
	require.Contains(t, p.part("Opt-outs"), "None: the person gets every category by every medium.")
	require.Contains(t, p.part("Opt-outs"), "the address for push as invalid")
	form := p.form(t, "/channels/opt-out")
	form.Set("category", "operator_notice")
	form.Set("medium", "sms")
	form.Set("reason", "asked for it")
	p = b.follow(t, "/channels/opt-out", form)
	require.Contains(t, p.text, "This person gets no more messages of operator_notice by sms.")
	require.Contains(t, p.part("Opt-outs"), "No messages of operator_notice by sms")
	require.Contains(t, p.part("Opt-outs"), "asked for it")
	form = p.form(t, "/channels/opt-out")
	form.Set("category", "unheard_of")
	p = b.post(t, "/channels/opt-out", form)
	require.GreaterOrEqual(t, p.status, 400)
	require.Contains(t, p.source, "<h1>Person kim</h1>", "the fault is on the page")
	require.Contains(t, p.source, `class="fault" role="alert"`)
	p = b.follow(t, "/channels/opt-in", b.get(t, at).form(t, "/channels/opt-in"))
	require.Contains(t, p.text, "This person gets messages of operator_notice by sms again.")
	require.Contains(t, p.part("Opt-outs"), "None")
	b.follow(t, "/channels/opt-out", p.form(t, "/channels/opt-out"))
	require.Contains(t, b.get(t, at).text, "Opted out of everything")
	require.Contains(t, b.get(t, at).part("Opt-outs"), "No messages at all")

	p = b.get(t, "/channels/forget?_back=%2Fchannels%2Fshow&external_id=kim")
	require.Contains(t, p.links(), "/channels/show", "back")
	p = b.follow(t, "/channels/forget", p.typed())
	require.Contains(t, p.text, "All data of the person is erased: 3 rows.")
	require.Equal(t, http.StatusNotFound, b.get(t, at).status)
	require.NotContains(t, h.as(t, "viewer").get(t, at).source, "opt-in")
}
