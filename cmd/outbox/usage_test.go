package main_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/secrets"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

var updateGolden = flag.Bool("update", os.Getenv("UPDATE_GOLDEN") != "", "write the golden files")

// commands are all commands that do something.
var commands = [][]string{
	{},
	{"schema"},
	{"schema", "print"},
	{"schema", "create"},
	{"schema", "check"},
	{"schema", "migrate"},
	{"stats"},
	{"events"},
	{"events", "list"},
	{"events", "show"},
	{"dead"},
	{"dead", "list"},
	{"dead", "show"},
	{"dead", "groups"},
	{"dead", "replay"},
	{"dead", "delete"},
	{"dead", "restore"},
	{"pause"},
	{"resume"},
	{"paused"},
	{"nodes"},
	{"audit"},
	{"shares"},
	{"replay"},
	{"replay", "start"},
	{"replay", "list"},
	{"replay", "stop"},
	{"replay", "continue"},
	{"purge"},
	{"bench"},
	{"contracts"},
	{"contracts", "diff"},
	{"docs"},
	{"doctor"},
	{"version"},
}

func TestTheHelpIsAsReviewed(t *testing.T) {
	t.Parallel()
	for _, args := range commands {
		name := filepath.Join("testdata", "help", strings.Join(append([]string{"outbox"}, args...), "-")+".txt")
		out := ok(t, "postgres://u:"+secrets.Password+"@h/d", append(args, "--help")...)
		require.NotContains(t, out, secrets.Password, "%v", args)
		if *updateGolden {
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, []byte(out), 0o600))
		}
		want, err := os.ReadFile(name)
		require.NoError(t, err, "UPDATE_GOLDEN=1 go test ./cmd/outbox -run AsReviewed writes it")
		require.Equal(t, string(want), out, "%v", args)
		for _, line := range strings.Split(out, "\n") {
			require.LessOrEqual(t, len([]rune(line)), 160, "%v", args)
		}
	}
}

func TestThePageNamesEveryCommandAndExitCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference/command-line.md"))
	require.NoError(t, err)
	for _, args := range commands {
		if len(args) == 0 || len(args) == 1 && slices.Contains([]string{"schema", "events", "dead", "replay", "contracts"}, args[0]) {
			continue
		}
		require.Contains(t, string(text), "`outbox "+strings.Join(args, " ")+"`")
	}
	for _, code := range []int{0, 1, 2, 3, 4, 5, 130} {
		require.Contains(t, string(text), fmt.Sprintf("| %d |", code))
	}
}

func TestWrongFlagsAreNamed(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--lmit is an unknown flag", []string{"events", "list", "--lmit", "5"}},
		{"two dashes", []string{"events", "list", "-x"}},
		{"--limit is given a text of 4 bytes; it takes a whole number", []string{"events", "list", "--limit", "many"}},
		{"--limit is 0; it must be from 1 to 500", []string{"events", "list", "--limit", "0"}},
		{"--limit is 501", []string{"events", "list", "--limit", "501"}},
		{"--limit needs a value", []string{"events", "list", "--limit"}},
		{"--after is a text of 3 bytes", []string{"events", "list", "--after", "x,y"}},
		{"--after is a text of 3 bytes", []string{"dead", "list", "--after", "x,y"}},
		{"--status has an unknown status", []string{"events", "list", "--status", "alive"}},
		{"--since is a text of 9 bytes", []string{"events", "list", "--since", "yesterday"}},
		{"--since is a text of 3 bytes", []string{"events", "list", "--since", "-2h"}},
		{"--until is not after --since", []string{"dead", "list", "--since", "1h", "--until", "2h"}},
		{"--since has the year 1", []string{"dead", "list", "--since", "0001-01-01T00:00:00Z"}},
		{"--event-type is 200 characters long; the limit is 128", []string{"dead", "list", "--event-type", long}},
		{"--tenant is not UTF-8", []string{"dead", "list", "--tenant", "\xff"}},
		{"--table is given", []string{"stats", "--table", "x; DROP TABLE outbox_event"}},
		{"--table is given", []string{"schema", "print", "--dialect", "sqlite", "--table", "a b"}},
		{"--dialect must be", []string{"schema", "print"}},
		{"--version is 9", []string{"schema", "print", "--dialect", "sqlite", "--version", "9"}},
		{"--down needs --version", []string{"schema", "print", "--dialect", "sqlite", "--down"}},
		{"--to is 7", []string{"schema", "migrate", "--to", "7"}},
		{"--index has an unknown index", []string{"schema", "create", "--index", "all"}},
		{"--group is a text of 4 bytes", []string{"dead", "list", "--group", "nope"}},
		{"--group is a text of 4 bytes", []string{"dead", "replay", "--group", "nope", "--yes"}},
		{"--interval is 1ns", []string{"stats", "--interval", "1ns"}},
		{"--interval is given a text of 4 bytes; it takes a duration", []string{"stats", "--interval", "fast"}},
		{"--retention is negative", []string{"purge", "--retention", "-1h"}},
		{"--batch is 0", []string{"purge", "--batch", "0"}},
		{"--batch is 0", []string{"dead", "replay", "--all", "--batch", "0"}},
		{"--events is 0", []string{"bench", "--events", "0"}},
		{"EVENT_ID is 200 characters long", []string{"events", "show", long}},
		{"EVENT_ID is empty", []string{"dead", "replay", ""}},
		{"takes one event id; it got 0", []string{"events", "show"}},
		{"takes one event type; it got 2", []string{"pause", "a", "b"}},
		{"EVENT_TYPE is empty", []string{"pause", ""}},
		{"--for is 500ms; it must be a second at least", []string{"pause", "a", "--for", "500ms"}},
		{"--for is -1h0m0s; it must be", []string{"pause", "a", "--for", "-1h"}},
		{"--reason is 501 characters long; the limit is 500", []string{"pause", "a", "--reason", strings.Repeat("a", 501)}},
		{"--reason contains a control character", []string{"pause", "a", "--reason", "a\nb"}},
		{"takes no arguments; it got 1", []string{"stats", "now"}},
		{"did you mean replay?", []string{"dead", "replya"}},
		{"the subcommand of outbox is unknown", []string{"x"}},
	} {
		text := fails(t, 2, s.DSN, c.args...)
		require.Contains(t, text, c.want, "%q", c.args)
		require.Contains(t, text, "--help", "%q", c.args)
	}
	require.Contains(t, fails(t, 2, "", "stats"), "OUTBOX_DSN")
	for _, address := range []string{"postgres://u:1/y@127.0.0.1/db", "mysql://u:x@y/z@127.0.0.1/db", "mysql://u:%@h/db"} {
		require.Contains(t, fails(t, 2, address, "stats"), "percent-encoded", address)
	}
	require.Contains(t, fails(t, 2, "mysql://u@127.0.0.1", "stats"), "append /database")
	var problem struct {
		Error    string `json:"error"`
		ExitCode int    `json:"exit_code"`
	}
	require.NoError(t, json.Unmarshal([]byte(fails(t, 2, s.DSN, "events", "list", "--limit", "0", "--json")), &problem))
	require.Contains(t, problem.Error, "--limit")
	require.Equal(t, 2, problem.ExitCode)
}

// The addresses are wrong in ways that make drivers quote them, or that take the password
// for another part.
func TestThePasswordIsNeverShown(t *testing.T) {
	t.Parallel()
	const p = secrets.Password
	addresses := []string{
		"postgres://u:" + p + "@127.0.0.1:1/db", "postgres://u:" + p + "@127.0.0.1:x/db", "postgres://u:" + p + " @127.0.0.1/db",
		"postgres://u:" + p + "%zz@127.0.0.1/db", "postgres://u:" + p + "#@127.0.0.1/db", "postgres://u:" + p + "?@127.0.0.1:1/db",
		"postgres://u:1/" + p + "@127.0.0.1:1/db", "postgres://u:x@" + p + "@127.0.0.1:1/db", "postgres://u:x@" + p + "/y@127.0.0.1:1/db",
		"postgres://u:" + p + "@127.0.0.1:70000/db", "postgres://u:" + p + "@127.0.0.1/db?sslmode=no",
		"host=127.0.0.1 port=x password=" + p, "host=127.0.0.1 port=1 password=" + p, "host=127.0.0.1 port=1 password='" + p, "host=127.0.0.1 port=1 password=" + p + `\`,
		"u:" + p + "@127.0.0.1:1/db", "u:" + p + "@tcp(127.0.0.1:1)", "u:" + p + "@tcp(127.0.0.1:1/db", "u:" + p + "@tcp(127.0.0.1:1)/db",
		"u:" + p + "/x@tcp(127.0.0.1:1)/db?a=%zz", "u:" + p + "@tcp(127.0.0.1:1)/", "mysql://u:" + p + "@127.0.0.1:1/db", "mysql://u:" + p + "@127.0.0.1:1",
		"mysql://u:" + p + "%zz@127.0.0.1:1/db", "mysql://u:1/" + p + "@127.0.0.1:1/db", p, "x://" + p, "sqlite://u:" + p + "@h/none.db", "file:/none/" + p + ".db",
	}
	for _, target := range testdb.Main()[:2] {
		db := testdb.Open(t, target)
		for _, old := range []string{"root@", "postgres@"} { // another password than the server's, or one that it ignores
			if strings.Contains(db.DSN, old) {
				addresses = append(addresses, strings.Replace(db.DSN, old, "nobody_"+strings.TrimSuffix(old, "@")+":"+p+"@", 1))
			}
		}
	}
	for _, address := range addresses {
		for _, args := range [][]string{{"stats"}, {"stats", "--json"}, {"doctor"}, {"__complete", "pause", ""}, {"schema", "migrate", "--table", "y"}} {
			for _, r := range []result{run(t, address, args...), run(t, "", append(args, "--dsn", address)...)} {
				require.NotContains(t, r.out+r.err, p, "%v with %q", args, address)
				if args[0] != "__complete" {
					require.NotZero(t, r.code, "%v with %q", args, address)
				}
			}
		}
	}
	for _, args := range [][]string{
		{"postgres://u:" + p + "@h/db"},
		{"stats", "postgres://u:" + p + "@h/db"},
		{"-postgres://u:" + p + "@h/db"},
		{"stats", "-u" + p},
		{"--postgres://u:" + p + "@h/db"},
		{"--dns=postgres://u:" + p + "@h/db"},
		{"--dns", "postgres://u:" + p + "@h/db"},
		{"stats", "--limit=" + p},
		{"stats", "--interval", p},
		{"events", "list", "--since", p},
		{"events", "list", "--status", p},
		{"dead", p},
		{"stats", "--=" + p},
		{"--" + p + "=x"},
	} {
		require.NotContains(t, fails(t, 2, "", args...), p, "%v", args)
	}
}

func TestAFailedConnectionIsOneLineWithTheWayOut(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u@127.0.0.1:1/db": "connection refused", "u@tcp(127.0.0.1:1)/db": "connection refused",
		testdb.Open(t, testdb.Main()[0]).DSN + "&nosuchsetting=1": "a parameter of the address",
		"sqlite:/none/none.db": "outbox schema create",
	} {
		text := fails(t, 1, address, "stats")
		require.Contains(t, text, want)
		require.Equal(t, 1, strings.Count(text, "\n"), text)
	}
}

func TestTheShellCompletesValues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.insert(t, envelope("e1"))
		hostile := envelope("e2")
		hostile.EventType = "Bad\x1b[2J"
		s.insert(t, hostile)
		hostile.EventID, hostile.EventType = "e3", "OrderP$(touch x)"
		s.insert(t, hostile)
		ok(t, s.DSN, "pause", "OrderPlaced", "--aggregate-type", "Order")
		complete := func(args ...string) string { return ok(t, s.DSN, append([]string{"__complete"}, args...)...) }
		require.Contains(t, complete("events", "list", "--status", ""), "retry\n")
		require.Contains(t, complete("schema", "create", "--index", ""), "tenant\n")
		require.Contains(t, complete("events", "list", "--event-type", ""), "OrderPlaced\n")
		require.NotContains(t, complete("pause", ""), "Bad", "a value that could steer the terminal is not proposed")
		require.NotContains(t, complete("pause", "Order"), "touch", "a shell would run it")
		require.Contains(t, complete("resume", ""), "OrderPlaced\n")
		require.Contains(t, complete("dea"), "dead")
		for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
			require.NotEmpty(t, ok(t, "", "completion", shell))
		}
	})
	require.NotContains(t, ok(t, "postgres://u@127.0.0.1:1/db", "__complete", "pause", ""), "refused", "a failure proposes nothing")
}
