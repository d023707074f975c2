package console_test

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/console"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// sheet follows the page's link to its CSV, and reads it: by the names of the columns.
func (b *browser) sheet(t *testing.T, path string) []map[string]string {
	t.Helper()
	var to string
	for _, link := range b.get(t, path).links() {
		if strings.Contains(link, "_form=csv") {
			to = link
		}
	}
	require.NotEmpty(t, to, path)
	p := b.get(t, to)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Equal(t, "text/csv; charset=utf-8", p.header.Get("Content-Type"))
	all, err := csv.NewReader(strings.NewReader(p.source)).ReadAll()
	require.NoError(t, err)
	rows := []map[string]string{}
	for _, cells := range all[1:] {
		row := make(map[string]string)
		for i, name := range all[0] {
			row[name] = cells[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// A list is a sheet as well, as it was filtered, and its cells are no formulas; who reads no
// contents there reads none here.
func TestConsole_AListIsASheet(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.enqueue(t, "=HYPERLINK(1)")
	h.enqueue(t, "Another")
	_, err := h.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann"})
	require.NoError(t, err)
	b := h.as(t, "operator")
	require.Len(t, b.sheet(t, "/jobs"), 2)
	rows := b.sheet(t, "/jobs?status=ABORTED&limit=7")
	require.Len(t, rows, 1)
	require.Equal(t, "'=HYPERLINK(1)", rows[0]["title"])
	require.Equal(t, "It says more.", rows[0]["body"])
	require.Regexp(t, `Z$`, rows[0]["created_at"])
	require.Equal(t, "[masked]", h.as(t, "viewer").sheet(t, "/jobs?status=ABORTED")[0]["body"])
	require.Empty(t, b.sheet(t, "/jobs?lane=nobody"), "a sheet of nothing has its headings")

	p := b.get(t, "/jobs?status=ABORTED&_form=csv")
	require.Equal(t, `attachment; filename="jobs-list.csv"`, p.header.Get("Content-Disposition"))
	require.NotContains(t, b.get(t, "/doctor").source, "_form=csv&", "what is no list is no sheet")
	require.Equal(t, http.StatusUnprocessableEntity, b.get(t, "/jobs?limit=many&_form=csv").status)
	require.Equal(t, http.StatusNotFound, b.get(t, "/jobs/99/report?_form=csv").status)
	require.Equal(t, http.StatusSeeOther, h.as(t, "").get(t, "/jobs?_form=csv").status)

	require.Equal(t, http.StatusSeeOther, b.post(t, "/time-zone", url.Values{"zone": {"Asia/Kathmandu"}}).status)
	require.Regexp(t, `\+05:45$`, b.sheet(t, "/jobs?status=ABORTED")[0]["created_at"])
}

// A stream is a sheet of all of it, however little of it the page shows.
func TestConsole_AStreamIsASheetOfAllOfIt(t *testing.T) {
	t.Parallel()
	const n = 450
	h := open(t, nil)
	_, err := h.db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || g, 'ios' FROM generate_series(1, 450) g`)
	require.NoError(t, err)
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: outbox.TypePush, Category: "operator_notice", Title: "Hello"})
	require.NoError(t, err)
	recipients, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(t, err)
	runner, err := job.NewRunner(h.db.Pool, job.DefaultConfig(), outbox.Types(recipients))
	require.NoError(t, err)
	_, err = runner.RunDue(t.Context())
	require.NoError(t, err)
	b := h.as(t, "operator")
	path := "/jobs/" + text.Int(id) + "/report"
	require.Len(t, b.sheet(t, path), n)
	p := b.get(t, path+"?_form=csv")
	require.Equal(t, `attachment; filename="jobs-report-1.csv"`, p.header.Get("Content-Disposition"))
	require.Contains(t, b.get(t, path).text, "All of it as CSV")
}

// What breaks off is no whole: the connection ends without an end.
func TestConsole_ASheetThatBreaksOffIsCut(t *testing.T) {
	t.Parallel()
	type thing struct {
		ID int `json:"id"`
	}
	for _, n := range []int{1, 10_000} {
		list := operation.DefineStream(operation.Operation{Name: "things walk", Short: "Walk by", Role: operation.Viewer},
			func(_ context.Context, _ *operation.Env, _ operation.None, each func(thing) error) (operation.None, error) {
				for id := range n {
					if err := each(thing{id}); err != nil {
						return operation.None{}, err
					}
				}
				return operation.None{}, errors.New("the disk is full")
			}, nil, func(*text.Doc, operation.None, operation.None) {})
		h := open(t, func(c *api.Options) {
			c.Operations = []operation.Operation{list}
			c.Pages = func(served *api.Handler, at string) http.Handler {
				return console.New(served, at, c.Operations, api.Environment{})
			}
		})
		b := h.as(t, "viewer")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/things/walk?_form=csv", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer viewer")
		res, err := b.client.Do(req)
		if err == nil {
			require.Equal(t, "text/csv; charset=utf-8", res.Header.Get("Content-Type"))
			_, err = io.ReadAll(res.Body)
			require.NoError(t, res.Body.Close())
		}
		require.Error(t, err, "%d rows", n)
	}
}
