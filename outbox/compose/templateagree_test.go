package compose

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// templates are texts with what the grammar says of them.
var templates = map[string]bool{
	"": true, "plain": true, "{": true, "}}": true, "{}": true, "{ {locale}}": true,
	"{{locale}}": true, "{{ locale }}": true, "{{\tlocale\t}}": true, "{{locale}}{{platform}}": true,
	"{{external_id}} {{time_zone}}": true, "{{attributes.a}}": true, "{{attributes._1}}": true, "{{value.a}}": true, "{{value.}}": false, "{{value}}": false,
	strings.Repeat("{{count}}", 100): true, strings.Repeat("{{count}}", 101): false,
	strings.Repeat("{{count|upper}}", 50): true, strings.Repeat("{{count|upper}}", 50) + "{{count}}": false,
	strings.Repeat(`{{count|default "||" | trim}}|`, 33) + "{{count}}": true, strings.Repeat(`{{"{{"}}|`, 99) + `{{locale}}`: true,
	strings.Repeat(`{{count|default "||" | trim}}|`, 33) + "{{count|trim}}": false, strings.Repeat(`{{"{{"}}|`, 99) + `{{locale|trim}}`: false,
	strings.Repeat("{{count | upper | lower | upper | lower | upper | lower | upper | lower}}", 11): true,
	strings.Repeat("{{count | upper | lower | upper | lower | upper | lower | upper | lower}}", 12): false,
	"{{count" + strings.Repeat("|upper", 8) + "}}":                                                  true, "{{{locale}}{{count" + strings.Repeat("|upper", 9) + "}}": false,
	"{{count" + strings.Repeat(`|default "|||"`, 8) + "}}": true, `{{"{{"}}{{count` + strings.Repeat(` | default "|" `, 9) + "}}": false,
	"{{count" + strings.Repeat("|upper", 5) + "}}|||||||||{{count" + strings.Repeat("|upper", 5) + "}}": true, strings.Repeat("|", 20): true,
	"{{count}}": true, "{{count | upper}}": true, "{{counts}}": false,
	"{{attributes." + strings.Repeat("a", 63) + "}}": true,
	"{{attributes." + strings.Repeat("a", 64) + "}}": false,
	"{{attributes.}}":                   false,
	"{{attributes.1a}}":                 false,
	"{{attributes.a.b}}":                false,
	"{{attributes.é}}":                  false,
	"{{attributes}}":                    false,
	"{{locale|upper}}":                  true,
	"{{locale | upper | lower | trim}}": true,
	"{{locale | Upper}}":                false,
	"{{locale | upper()}}":              false,
	"{{locale upper}}":                  false,
	"{{locale |}}":                      false,
	"{{| upper}}":                       false,
	"{{}}":                              false,
	"{{ }}":                             false,
	"{{locale":                          false,
	"{{locale}":                         false,
	"{{locale\n}}":                      false,
	"{{locale}}}":                       true,
	"{{{locale}}":                       true, // a brace, then the locale
	"{{{locale}}{x":                     true,
	"{{{{locale}}}}":                    false,
	"{{ {{locale}} }}":                  false,
	`{{"{{"}}`:                          true,
	`{{ "{{" }}`:                        true,
	`{{"{"}}`:                           false,
	`{{"{{" | upper}}`:                  false,
	`{{"{{"}}locale}}`:                  true,
	`{{locale | default "x"}}`:          true,
	`{{locale | default ""}}`:           true,
	`{{locale | default"x"}}`:           false,
	`{{locale | default 'x'}}`:          false,
	`{{locale | default x}}`:            false,
	`{{locale | default "친구 | upper"}}`: true,
	"{{locale | default \"a\nb\"}}":     true,
	`{{locale | default "}"}}`:          false,
	`{{locale | default "` + strings.Repeat("é", 200) + `"}}`: true,
	`{{locale | default "` + strings.Repeat("é", 201) + `"}}`: false,
	"{{locale | truncate 1}}":                                 true,
	"{{locale | truncate 200}}":                               true,
	"{{locale | truncate 201}}":                               false,
	"{{locale | truncate 0}}":                                 false,
	"{{locale | truncate 01}}":                                false,
	"{{locale | truncate}}":                                   false,
	"{{locale | truncate 1000}}":                              false,
	"{{locale | truncate ١}}":                                 false,
	"{{locales}}":                                             false,
	"{{if locale}}x{{end}}":                                   false,
	"{{.Attributes}}":                                         false,
	"{{locale\u00a0}}":                                        false,
	"{{locale}} and {{":                                       false,
	"{\u200b{x":                                               true,
}

// templateProblems asks the database what is wrong with each text; "": nothing.
func templateProblems(t require.TestingT, db *dbtest.DB, texts []string) []string {
	rows, err := db.Pool.Query(context.Background(),
		`SELECT coalesce(belfry.template_problem(u.text), '') FROM unnest($1::text[]) WITH ORDINALITY u (text, n) ORDER BY u.n`, texts)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

// Go and the database agree with the templates (invariant 1).
func TestTemplate_AgreesWithTheDatabaseOnTheCorpus(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	var texts []string
	for text := range templates {
		texts = append(texts, text)
	}
	for i, problem := range templateProblems(t, db, texts) {
		_, err := parseTemplate(texts[i])
		require.Equal(t, templates[texts[i]], err == nil, "Parse(%q): %v", texts[i], err)
		require.Equal(t, templates[texts[i]], problem == "", "belfry.template_problem(%q): %s", texts[i], problem)
		if err != nil {
			_, said, _ := strings.Cut(err.Error(), "is not allowed")
			_, told, _ := strings.Cut(problem, "is not allowed")
			require.Equal(t, told, said, "both name what is allowed")
		}
	}
}

// Go and the database agree on whatever is put together from the grammar's own pieces
// (invariant 1).
func TestTemplate_AgreesWithTheDatabaseOnAnything(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"{", "}", "{{", "}}", "{{", "}}", "|", `"`, " ", "\t", "\n", `"{{"`, "locale", "platform", "external_id", "time_zone", "count", "attributes.", "value.", "a", "_",
			"1", "0", "20", "200", "upper", "lower", "trim", "default", "truncate", ` default "x"`, " truncate 5", "é", "x",
			"{{locale}}", "{{ attributes.a | trim }}", ` | upper`, ` | default "y"`,
		}),
		rapid.StringN(0, 3, -1).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }),
	)
	rapid.Check(t, func(rt *rapid.T) {
		var texts []string
		for range 200 {
			texts = append(texts, strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(rt, "pieces"), ""))
		}
		for i, problem := range templateProblems(rt, db, texts) {
			_, err := parseTemplate(texts[i])
			require.Equal(rt, problem == "", err == nil, "%q: Go says %v, SQL says %q", texts[i], err, problem)
		}
	})
}

// belfry.rendered, which the notification centre uses, renders as messages are rendered.
func TestTemplate_RendersAsTheDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	known := `{"locale": "ko", "platform": "ios", "external_id": "u 1", "count": 1, "attributes": {"a": " Ann\t\u202e", "n": 1.50, "list": [1],
		"turns": "` + strings.Repeat(`\u202e`, 999) + `xy"}, "value": {"a": "x\ny", "t": true, "long": "` + strings.Repeat("é", 201) + `"}}`
	var loose bool
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT prosrc !~ 'template_action|template_problem' FROM pg_proc WHERE oid = 'belfry.rendered'::regproc`).Scan(&loose))
	require.True(t, loose, "the grammar costs 6 ms of CPU for a title with three values")
	values := templateValues{Locale: "ko", Platform: "ios", ExternalID: "u 1"}
	var objects struct{ Attributes, Value map[string]json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(known), &objects))
	values.Attributes, values.Value = objects.Attributes, objects.Value
	value := rapid.SampledFrom([]string{"locale", "platform", "external_id", "time_zone", "count", "attributes.a", "attributes.n", "attributes.list", "attributes.none", "attributes.turns", "value.a", "value.t", "value.long"})
	function := rapid.SampledFrom([]string{"upper", "lower", "trim", `default "b | upper"`, `default ""`, `default "|upper|trim"`, "truncate 1", "truncate 3", "truncate 200"})
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"", " ", "x", "}}", "{", `{{"{{"}}`, `{{ "{{"	}}`, "{{	locale }}", `"`, "|", "\n", "é", strings.Repeat("long ", 30)}),
		rapid.Custom(func(t *rapid.T) string {
			return "{{" + strings.Join(append([]string{value.Draw(t, "value")}, rapid.SliceOfN(function, 0, 8).Draw(t, "functions")...), " | ") + "}}"
		}),
	)
	rapid.Check(t, func(rt *rapid.T) {
		var texts, want []string
		for range 100 {
			text := strings.Join(rapid.SliceOfN(piece, 0, 6).Draw(rt, "pieces"), "")
			if parsed, err := parseTemplate(text); err == nil {
				texts, want = append(texts, text), append(want, cut(parsed.execute(values), maxTitle))
			}
		}
		rows, err := db.Pool.Query(context.Background(),
			`SELECT belfry.rendered(u.text, 200, $2) FROM unnest($1::text[]) WITH ORDINALITY u (text, n) ORDER BY u.n`, texts, known)
		require.NoError(rt, err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(rt, err)
		for i := range texts {
			require.Equal(rt, want[i], got[i], "%q", texts[i])
		}
	})
}
