package monitoring_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert       string
			Expr        string
			For         string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

func readRules(t *testing.T) rules {
	t.Helper()
	return readYAML[rules](t, "rules.yaml")
}

func readYAML[T any](t *testing.T, file string) (v T) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &v))
	return v
}

func TestAlertsUseMetricsThatExistAndAreExplained(t *testing.T) {
	t.Parallel()
	known := series(t)
	var alerts, explained []string
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			alerts = append(alerts, rule.Alert)
			requireMetrics(t, known, rule.Expr)
			require.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			if rule.For != "" {
				_, err := time.ParseDuration(rule.For)
				require.NoError(t, err, rule.Alert)
			}
			for _, row := range table(t, "alert", "severity") {
				if codes(row[0])[0] == rule.Alert {
					explained = append(explained, rule.Alert)
					require.Equal(t, rule.Labels["severity"], row[1], rule.Alert)
				}
			}
		}
	}
	require.Equal(t, alerts, explained, "each alert has one row in the document")
	require.Len(t, table(t, "alert", "severity"), len(alerts))
}

func TestEveryAlertFiresOnSampleSeriesOfMetricsThatExist(t *testing.T) {
	t.Parallel()
	type samples struct {
		Tests []struct {
			Name          string
			InputSeries   []struct{ Series string } `yaml:"input_series"`
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	known := series(t)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range readYAML[samples](t, "rules_test.yaml").Tests {
		for _, input := range test.InputSeries {
			requireMetrics(t, known, input.Series)
		}
		for _, check := range test.AlertRuleTest {
			if len(check.ExpAlerts) > 0 {
				fires[check.Alertname] = true
			} else {
				silent[check.Alertname] = true
			}
		}
	}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			require.True(t, fires[rule.Alert], "no sample makes %s fire", rule.Alert)
			require.True(t, silent[rule.Alert], "no sample leaves %s silent", rule.Alert)
		}
	}
}

// promtool runs Prometheus's own tool on files of this folder.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed; it is in Debian's package prometheus (apt-get install --no-install-recommends prometheus) and in Prometheus's releases. What needs no promtool is tested beside this.")
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "rules.yaml")
}

func TestPromtoolSeesTheRulesFireOnSampleSeries(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", "rules_test.yaml")
}
