package metrics

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/belfryhq/belfry/dev/dbtest"
)

const monitoring = "../../docs/monitoring/"

// series are the names that an expression may have, with their labels: those of the metrics, of
// a histogram its parts, and those that Prometheus adds itself.
func series(t *testing.T) map[string][]string {
	t.Helper()
	m, _, _ := full(t)
	names := map[string][]string{"up": nil, "process_resident_memory_bytes": nil, "go_goroutines": nil}
	for _, d := range m.known {
		if d.kind != "histogram" {
			names[d.name] = d.labels
			continue
		}
		names[d.name+"_bucket"] = append([]string{"le"}, d.labels...)
		names[d.name+"_sum"], names[d.name+"_count"] = d.labels, d.labels
	}
	return names
}

var (
	overTime   = regexp.MustCompile(`\[[^\]]*\]`)
	selector   = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})?`)
	matcher    = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^)]*)\)`)
	ofTemplate = regexp.MustCompile(`\$labels\.([a-z_]+)`)
	ofLegend   = regexp.MustCompile(`\{\{\s*([a-z_]+)\s*\}\}`)
)

// words are those of the language itself, as far as they are used.
var words = []string{
	"sum", "max", "min", "count", "rate", "increase", "time", "histogram_quantile", "and", "or", "unless", "by", "without", "on", "ignoring",
}

// checkExpression requires that an expression names metrics that there are, with labels
// that they have, and returns the labels of what it comes to, and the metrics.
func checkExpression(t *testing.T, expr string, known map[string][]string) (labels []string, used []string) {
	t.Helper()
	require.Equal(t, strings.Count(expr, "("), strings.Count(expr, ")"), expr)
	require.Equal(t, strings.Count(expr, "{"), strings.Count(expr, "}"), expr)
	everywhere := []string{"instance", "job"}
	grouped := false
	var of []string
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		grouped = true
		for label := range strings.SplitSeq(g[1], ",") {
			labels = append(labels, strings.TrimSpace(label))
		}
	}
	for _, s := range selector.FindAllStringSubmatch(overTime.ReplaceAllString(grouping.ReplaceAllString(expr, ""), ""), -1) {
		name := s[1]
		if slices.Contains(words, name) {
			continue
		}
		has, ok := known[name]
		require.True(t, ok, "%s: there is no metric %s", expr, name)
		used = append(used, name)
		of = append(of, has...)
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			require.Contains(t, append(slices.Clone(has), everywhere...), m[1], "%s: %s has no label %s", expr, name, m[1])
		}
		if s[2] != "" {
			require.Regexp(t, `^\{(\w+(=~|!~|!=|=)"[^"]*",?\s*)+\}$`, s[2], expr)
		}
	}
	require.NotEmpty(t, used, expr)
	of = append(of, everywhere...)
	for _, label := range labels {
		require.Contains(t, of, label, "%s: no metric of it has the label %s", expr, label)
	}
	if !grouped {
		labels = of
		if strings.Contains(expr, "max(") || strings.Contains(expr, "sum(") || strings.Contains(expr, "count(") {
			labels = nil
		}
	}
	return labels, used
}

// anchors are the headings of a page as GitHub calls them in links.
func anchors(t *testing.T, path string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(string(text), -1) {
		list = append(list, strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return list
}

// Each alert goes by metrics that there are, and leads to what to do about it.
func TestMonitoring_AlertsAreOfMetricsAndLeadToRunbooks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(monitoring + "alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	known, pages := series(t), anchors(t, "../../docs/on-call.md")
	seen := make(map[string]bool)
	for _, group := range file.Groups {
		require.NotEmpty(t, group.Name)
		for _, r := range group.Rules {
			require.Regexp(t, `^Belfry[A-Z][A-Za-z]+$`, r.Alert)
			require.False(t, seen[r.Alert], r.Alert)
			seen[r.Alert] = true
			labels, _ := checkExpression(t, r.Expr, known)
			_, err := time.ParseDuration(r.For)
			require.NoError(t, err, r.Alert)
			require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.NotEmpty(t, r.Annotations["description"], r.Alert)
			for _, m := range ofTemplate.FindAllStringSubmatch(r.Annotations["description"], -1) {
				require.Contains(t, labels, m[1], "%s: what its expression comes to has no such label", r.Alert)
			}
			page, anchor, ok := strings.Cut(r.Annotations["runbook_url"], "#")
			require.True(t, ok, r.Alert)
			require.Equal(t, "https://github.com/belfryhq/belfry/blob/main/docs/on-call.md", page, r.Alert)
			require.Contains(t, pages, anchor, r.Alert)
		}
	}
	require.Greater(t, len(seen), 20)
}

// Prometheus itself reads the rules, and what testdata/alerts.yaml says of them comes true.
func TestMonitoring_PromtoolAgreesWithTheAlerts(t *testing.T) {
	t.Parallel()
	program := dbtest.PromtoolProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, args := range [][]string{{"check", "rules", monitoring + "alerts.yaml"}, {"test", "rules", "testdata/alerts.yaml"}} {
		said, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.Contains(t, string(said), "SUCCESS")
	}
}

// panel is one of a dashboard.
type panel struct {
	ID          int
	Type, Title string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// The dashboard shows each metric, and no other.
func TestMonitoring_DashboardShowsEachMetric(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(monitoring + "grafana.json")
	require.NoError(t, err)
	var board struct {
		Title, UID string
		Panels     []panel
	}
	require.NoError(t, json.Unmarshal(text, &board))
	require.Equal(t, "belfry", board.UID)
	known, ids, titles, shown := series(t), make(map[int]bool), make(map[string]bool), make(map[string]bool)
	place := make(map[[2]int]string)
	for _, p := range board.Panels {
		require.False(t, ids[p.ID] || titles[p.Title], p.Title)
		ids[p.ID], titles[p.Title] = true, true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, place[at], "%s overlaps", p.Title)
				require.Less(t, at[0], 24, p.Title)
				place[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			labels, used := checkExpression(t, target.Expr, known)
			for _, name := range used {
				shown[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")] = true
			}
			for _, m := range ofLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, labels, m[1], "%s: %s", p.Title, target.LegendFormat)
			}
		}
	}
	m, _, _ := full(t)
	for _, d := range m.known {
		require.True(t, shown[d.name], "the dashboard does not show %s", d.name)
	}
}
