package monitoring_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// ruleTests are promtool's: the sample series and when which alert fires.
var ruleTests = []string{"../../monitoring/rules_test.yaml", "../../monitoring/rules_rates_test.yaml"}

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
	return readYAML[rules](t, "../../monitoring/rules.yaml")
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
	var names, explained []string
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			requireMetrics(t, known, rule.Expr)
			require.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			if rule.For != "" {
				_, err := time.ParseDuration(rule.For)
				require.NoError(t, err, rule.Alert)
			}
			for _, row := range table(t, alerts, "alert", "severity") {
				if codes(row[0])[0] == rule.Alert {
					explained = append(explained, rule.Alert)
					require.Equal(t, rule.Labels["severity"], row[1], rule.Alert)
				}
			}
		}
	}
	require.Equal(t, names, explained, "each alert has one row in the page")
	require.Len(t, table(t, alerts, "alert", "severity"), len(names))
}

// TestSumsLeaveOutTheLabelsOfTheProcessAndOfTheEvent: with a label of the event
// in it, each kind of events would be judged alone, as the rules of a kind do, and that of dead letters.
func TestSumsLeaveOutTheLabelsOfTheProcessAndOfTheEvent(t *testing.T) {
	t.Parallel()
	const process, event = "instance, pod", "event_type, aggregate_type, listener, outbox_event_type, outbox_aggregate_type, outbox_listener"
	ofEvents := map[string]bool{}
	for _, row := range table(t, reference, "Prometheus", "OpenTelemetry", "type") {
		ofEvents[codes(row[0])[0]] = row[3] == "event"
	}
	pattern := regexp.MustCompile(`sum without \(([^)]*)\)`)
	sums := 0
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			want := process
			if slices.ContainsFunc(metricsOf(rule.Expr), func(name string) bool { return ofEvents[name] }) {
				want += ", " + event
				if strings.HasPrefix(rule.Alert, "OutboxKind") || rule.Alert == "OutboxDeadLettersGrowing" {
					want = process + ", listener, outbox_listener"
				}
			}
			if slices.ContainsFunc(metricsOf(rule.Expr), func(name string) bool { return strings.HasPrefix(name, "outbox_relay_") }) {
				want += ", topic, messaging_destination_name"
			}
			found := pattern.FindAllStringSubmatch(rule.Expr, -1)
			require.Len(t, found, strings.Count(rule.Expr, "sum "), rule.Alert)
			for _, sum := range found {
				sums++
				require.Equal(t, want, strings.TrimSuffix(sum[1], ", of"), rule.Alert)
			}
		}
	}
	require.GreaterOrEqual(t, sums, 5)
}

func TestEveryAlertFiresAndResolvesOnSampleSeriesOfMetricsThatExist(t *testing.T) {
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
	silent, fires, resolves := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, file := range ruleTests {
		for _, test := range readYAML[samples](t, file).Tests {
			for _, input := range test.InputSeries {
				requireMetrics(t, known, input.Series)
			}
			fired := map[string]bool{}
			for _, check := range test.AlertRuleTest { // in the order of time
				name := check.Alertname
				switch {
				case len(check.ExpAlerts) > 0:
					fired[name], fires[name] = true, true
				case fired[name]:
					resolves[name] = true
				default:
					silent[name] = true
				}
			}
		}
	}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			require.True(t, fires[rule.Alert], "no sample makes %s fire", rule.Alert)
			require.True(t, silent[rule.Alert], "no sample leaves %s silent", rule.Alert)
			require.True(t, resolves[rule.Alert], "in no sample is %s over again", rule.Alert)
		}
	}
}

// An alert's runbook is a section of the page for operators, which names the alert.
func TestEachAlertLeadsToItsSectionOfTheRunbook(t *testing.T) {
	t.Parallel()
	const page = "docs/how-to/when-something-is-wrong.md"
	text, err := os.ReadFile("../../../" + page)
	require.NoError(t, err)
	sections := map[string]string{} // by anchor
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		sections[strings.ReplaceAll(strings.ToLower(title), " ", "-")] = section
	}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			anchor, ok := strings.CutPrefix(rule.Annotations["runbook_url"], "https://github.com/outboxkit/outbox-go/blob/main/"+page+"#")
			require.True(t, ok, rule.Alert)
			require.Contains(t, sections, anchor, rule.Alert)
			require.Contains(t, sections[anchor], "`"+rule.Alert+"`", "the section %s names its alerts", anchor)
		}
	}
}

func TestPromtoolAcceptsTheRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "../../monitoring/rules.yaml")
}

func TestPromtoolSeesTheRulesFireOnSampleSeries(t *testing.T) {
	t.Parallel()
	promtool(t, append([]string{"test", "rules"}, ruleTests...)...)
}
