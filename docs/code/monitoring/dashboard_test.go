package monitoring_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// tableMetrics are of the rows, which all processes see alike.
var tableMetrics = []string{
	"outbox_events_pending", "outbox_events_due", "outbox_events_delayed", "outbox_events_dead", "outbox_oldest_due_age_seconds",
}

type source struct{ Type, UID string }

type dashboard struct {
	Title         string
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
			AllValue   string
			IncludeAll bool
		}
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  source
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                source
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("../../monitoring/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

func TestDashboardAsksForMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := series(t)
	asked := map[string]bool{}
	queries := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			queries++
			requireMetrics(t, known, target.Expr)
			for _, name := range metricsOf(target.Expr) {
				asked[name] = true
			}
		}
	}
	require.Greater(t, queries, 30)
	for _, variable := range readDashboard(t).Templating.List {
		if variable.Type == "query" {
			requireMetrics(t, known, string(variable.Query))
		}
	}
	for name := range known { // unused series may be absent
		switch {
		case strings.HasSuffix(name, "_bucket"), strings.HasSuffix(name, "_sum"), strings.HasSuffix(name, "_count"):
		case name == "outbox_poll_interval_seconds", name == "outbox_table_read_timestamp_seconds": // constants, and for queries by hand
		default:
			require.True(t, asked[name], "no panel shows %s", name)
		}
	}
}

func TestDashboardIsOneThatGrafana10Imports(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	require.NotEmpty(t, d.Title)
	require.NotEmpty(t, d.UID)
	require.GreaterOrEqual(t, d.SchemaVersion, 38, "what Grafana 10.0 writes")
	require.LessOrEqual(t, d.SchemaVersion, 39, "what Grafana 10.4 reads")
	variables := map[string]string{}
	for _, variable := range d.Templating.List {
		variables[variable.Name] = variable.Type
	}
	require.Equal(t, map[string]string{"datasource": "datasource", "job": "query", "outbox": "query", "instance": "query"}, variables)
	ids, taken := map[int]bool{}, map[[2]int]int{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Zero(t, taken[place], "%s lies on panel %d", p.Title, taken[place])
				taken[place] = p.ID
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			require.Equal(t, source{"prometheus", "${datasource}"}, target.Datasource, p.Title)
			require.False(t, refs[target.RefID], p.Title)
			refs[target.RefID] = true
			for _, name := range []string{`job=~"$job"`, `instance=~"$instance"`, `outbox=~"$outbox"`} {
				require.Equal(t, len(metricsOf(target.Expr)), strings.Count(target.Expr, name),
					"%s: every metric is filtered by what is picked", p.Title)
			}
		}
	}
}

// TestDashboardTellsOutboxesApart: what is summed up over several outboxes is the
// figure of none.
func TestDashboardTellsOutboxesApart(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	aggregation := regexp.MustCompile(`\b(sum|max|min)\b(?: by \(([^)]*)\))?`)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			require.Contains(t, target.LegendFormat, "{{outbox}}", p.Title)
			for _, by := range aggregation.FindAllStringSubmatch(target.Expr, -1) {
				require.Contains(t, strings.Split(by[2], ", "), "outbox", "%s: %s", p.Title, target.Expr)
			}
			for _, name := range metricsOf(target.Expr) {
				if slices.Contains(tableMetrics, name) {
					require.Contains(t, target.Expr, "max by (job, outbox) (", "%s: every process sees the same rows", p.Title)
				}
			}
		}
	}
}

// TestVariablesOfTheDashboardLeaveNothingOutAtFirst: series without a label match
// its variable, too.
func TestVariablesOfTheDashboardLeaveNothingOutAtFirst(t *testing.T) {
	t.Parallel()
	for _, variable := range readDashboard(t).Templating.List {
		if variable.Type == "query" {
			require.True(t, variable.IncludeAll, variable.Name)
			require.Equal(t, ".*", variable.AllValue, variable.Name)
		}
	}
}

// TestPromtoolAcceptsTheQueriesOfTheDashboard lets promtool parse them as the
// expressions of recording rules.
func TestPromtoolAcceptsTheQueriesOfTheDashboard(t *testing.T) {
	t.Parallel()
	type rule struct{ Record, Expr string }
	var list []rule
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$outbox", ".*").Replace(target.Expr)
			require.NotContains(t, expr, "$")
			list = append(list, rule{"panel:" + strings.ToLower(target.RefID) + ":" + strings.Repeat("x", len(list)+1), expr})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": list}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "check", "rules", file)
}
