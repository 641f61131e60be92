// Package tutorial_test follows docs/TUTORIAL.md step by step, as a reader would.
package tutorial_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// What the page has, and the test replaces.
const (
	pageDatabase = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	pageFirst    = "127.0.0.1:8080"
	pageSecond   = "127.0.0.1:8081"
	pageClone    = "../outbox-go"
)

// patience is for one step on a busy machine.
const patience = 2 * time.Minute

// step is a block of the page, with the remarks on the lines before it:
//
//	<!-- file: main.go -->    the block is the whole file
//	<!-- terminal: 1 -->      the commands run there, or the text appears there
//	<!-- interrupt: 1 -->     before the block, Ctrl-C is pressed there
//	<!-- order: any -->       the lines of the block may come in another order
//	<!-- not run: reason -->  the block is skipped
//
// A text block without a remark is the output of the command before it.
type step struct {
	kind     string
	text     string
	remarks  map[string]string
	position string
}

var remark = regexp.MustCompile(`^<!-- ([a-z ]+): (.+) -->$`)

func steps(page string) (list []step) {
	next := step{remarks: map[string]string{}}
	open := false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case open && line == "```":
			list = append(list, next)
			next, open = step{remarks: map[string]string{}}, false
		case open:
			next.text += line + "\n"
		case strings.HasPrefix(line, "```"):
			open, next.kind = true, strings.TrimPrefix(line, "```")
			next.position = fmt.Sprintf("TUTORIAL.md:%d", i+1)
		default:
			if m := remark.FindStringSubmatch(line); m != nil {
				next.remarks[m[1]] = m[2]
			}
		}
	}
	return list
}

// varying is what differs from run to run: ids, times, durations, names of nodes,
// process numbers.
var varying = []string{
	`\b[0-9A-HJKMNP-TV-Z]{26}\b`,
	`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`,
	`\b\d+\.\d+s\b`,
	`owner=\S+`,
	`table=\S+`, // with the schema of the test
	`process \d+`,
}

var anyVarying = regexp.MustCompile(strings.Join(varying, "|"))

// known are the values that this run has for those of the page.
type known map[string]string

// matches compares a line of the page with one of the program. Blanks count as one.
func (k known) matches(page, got string) bool {
	var pattern strings.Builder
	literal := func(text string) {
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(text), " ", `\s`))
	}
	page, got = strings.Join(strings.Fields(page), " "), strings.Join(strings.Fields(got), " ")
	var values []string
	end := 0
	for _, at := range anyVarying.FindAllStringIndex(page, -1) {
		literal(page[end:at[0]])
		end = at[1]
		value := page[at[0]:at[1]]
		values = append(values, value)
		for _, class := range varying {
			if regexp.MustCompile(`^(?:` + class + `)$`).MatchString(value) {
				pattern.WriteString("(" + class + ")")
				break
			}
		}
	}
	literal(page[end:])
	m := regexp.MustCompile("^" + pattern.String() + "$").FindStringSubmatch(got)
	if m == nil {
		return false
	}
	for i, value := range values {
		mine := m[i+1]
		value, mine = strings.TrimPrefix(value, "process "), strings.TrimPrefix(mine, "process ")
		if !regexp.MustCompile(`^[0-9A-Z]+$`).MatchString(value) {
			continue // no name of something
		}
		if old, is := k[value]; is && old != mine {
			return false
		}
		k[value] = mine
	}
	return true
}

// replace puts the run's values into a command of the page.
func (k known) replace(command string) string {
	for page, mine := range k {
		command = regexp.MustCompile(`\b`+regexp.QuoteMeta(page)+`\b`).ReplaceAllString(command, mine)
	}
	return command
}

// terminal is where a program runs until it is stopped.
type terminal struct {
	mu    sync.Mutex
	out   bytes.Buffer
	shown int // lines that were compared
	cmd   *exec.Cmd
	ended chan struct{}
}

func (term *terminal) Write(p []byte) (int, error) {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.out.Write(p)
}

// rest are the whole lines that were not compared yet.
func (term *terminal) rest() []string {
	term.mu.Lock()
	defer term.mu.Unlock()
	lines := strings.Split(term.out.String(), "\n")
	return lines[term.shown : len(lines)-1]
}

func (term *terminal) forget() {
	term.mu.Lock()
	defer term.mu.Unlock()
	term.out.Reset()
	term.shown = 0
}

// reader follows the page.
type reader struct {
	t         *testing.T
	dir       string
	env       []string
	known     known
	terminals map[string]*terminal
	last      string // the output of the last command
}

func newReader(t *testing.T) *reader {
	t.Helper()
	home := t.TempDir()
	r := &reader{t: t, dir: home, known: known{}, terminals: map[string]*terminal{}}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OUTBOX_") && !strings.HasPrefix(v, "PG") {
			r.env = append(r.env, v)
		}
	}
	bin := filepath.Join(home, "bin")
	// The modules are those that the repository's own tests need: no version is looked up.
	r.env = append(r.env, "GOBIN="+bin, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false", "GOWORK=off", "GOTOOLCHAIN=local")
	t.Cleanup(func() {
		for _, term := range r.terminals {
			term.kill()
		}
	})
	return r
}

func (term *terminal) kill() {
	if term.cmd != nil {
		_ = term.cmd.Process.Kill()
		<-term.ended
	}
}

func (r *reader) terminal(name string) *terminal {
	if r.terminals[name] == nil {
		r.terminals[name] = &terminal{}
	}
	return r.terminals[name]
}

// follow does what a block says.
func (r *reader) follow(s step) {
	r.t.Helper()
	if name, is := s.remarks["interrupt"]; is {
		r.interrupt(s, r.terminal(name))
	}
	name, inTerminal := s.remarks["terminal"]
	switch s.kind {
	case "go":
		file := s.remarks["file"]
		require.NotEmpty(r.t, file, "%s: the block has no <!-- file: … -->", s.position)
		require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, file), []byte(s.text), 0o600))
	case "console":
		lines := strings.Split(strings.TrimSpace(s.text), "\n")
		for i, line := range lines {
			if inTerminal && i == len(lines)-1 {
				r.start(s, r.terminal(name), r.known.replace(line))
			} else {
				r.run(s, r.known.replace(line))
			}
		}
	case "text":
		if inTerminal {
			r.await(s, r.terminal(name))
		} else {
			r.compare(s, strings.Split(strings.TrimSuffix(r.last, "\n"), "\n"))
		}
	default:
		r.t.Fatalf("%s: a block of %q is none that the test knows", s.position, s.kind)
	}
}

var assignment = regexp.MustCompile(`^([A-Z]+)=(\S*) `)

// run runs a command to its end.
func (r *reader) run(s step, line string) {
	r.t.Helper()
	if rest, is := strings.CutPrefix(line, "cd "); is {
		r.dir = filepath.Join(r.dir, rest)
		return
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if rest, is := strings.CutPrefix(line, "export "); is {
		name, _, _ := strings.Cut(rest, "=")
		line += ` && printf %s "$` + name + `"`
		defer func() { r.env = append(r.env, name+"="+r.last) }()
	}
	if line == "go mod tidy" { // which would ask the network: -mod=mod finds the versions of the repository
		sums, err := os.ReadFile("../../../go.sum")
		require.NoError(r.t, err)
		require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, "go.sum"), sums, 0o600))
		return
	}
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, r.env, &out, &errOut
	began := time.Now()
	require.NoError(r.t, cmd.Run(), "%s: %s\n%s%s", s.position, line, &out, &errOut)
	r.t.Logf("%5.1fs  %s", time.Since(began).Seconds(), line)
	r.last = out.String()
}

// start starts a program in a terminal.
func (r *reader) start(s step, term *terminal, line string) {
	r.t.Helper()
	term.forget()
	env := r.env
	for m := assignment.FindStringSubmatch(line); m != nil; m = assignment.FindStringSubmatch(line) {
		env = append(env[:len(env):len(env)], m[1]+"="+m[2])
		line = strings.TrimPrefix(line, m[0])
	}
	require.NotContains(r.t, line, " ", "%s: a program that goes on running has no arguments", s.position)
	cmd := exec.CommandContext(context.WithoutCancel(r.t.Context()), filepath.Join(r.dir, line))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, env, term, term
	require.NoError(r.t, cmd.Start(), s.position)
	ended := make(chan struct{})
	term.cmd, term.ended = cmd, ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
}

// interrupt is Ctrl-C. All that the program has printed was on the page.
func (r *reader) interrupt(s step, term *terminal) {
	r.t.Helper()
	require.NotNil(r.t, term.cmd, "%s: nothing runs there", s.position)
	require.Empty(r.t, term.rest(), "%s: the page does not show this", s.position)
	require.NoError(r.t, term.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-term.ended:
	case <-time.After(patience):
		r.t.Fatalf("%s: the program does not end\n%s", s.position, strings.Join(term.rest(), "\n"))
	}
	require.True(r.t, term.cmd.ProcessState.Success(), "%s: %v\n%s", s.position, term.cmd.ProcessState, strings.Join(term.rest(), "\n"))
}

// await waits for the lines of a block.
func (r *reader) await(s step, term *terminal) {
	r.t.Helper()
	want := strings.Count(s.text, "\n")
	began := time.Now()
	for ended := false; len(term.rest()) < want && !ended && time.Since(began) < patience; {
		select {
		case <-term.ended:
			ended = true // it shows nothing more
		case <-time.After(5 * time.Millisecond):
		}
	}
	got := term.rest()
	r.compare(s, got[:min(want, len(got))])
	r.t.Logf("%5.1fs  until it is shown: %s", time.Since(began).Seconds(), got[want-1])
	term.mu.Lock()
	defer term.mu.Unlock()
	term.shown += want
}

func (r *reader) compare(s step, got []string) {
	r.t.Helper()
	want := strings.Split(strings.TrimSuffix(s.text, "\n"), "\n")
	same := len(want) == len(got)
	left := slices.Clone(got)
	for i := 0; same && i < len(want); i++ {
		at := 0
		if s.remarks["order"] == "any" {
			at = max(0, slices.IndexFunc(left, func(line string) bool { return r.known.matches(want[i], line) }))
		}
		same = r.known.matches(want[i], left[at])
		left = slices.Delete(left, at, at+1)
	}
	if !same {
		r.t.Fatalf("%s: the page shows\n%s\nand the program\n%s", s.position, s.text, strings.Join(got, "\n"))
	}
}

func TestTheTutorialRuns(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("the page's commands need curl, which is not installed")
	}
	text, err := os.ReadFile("../../TUTORIAL.md")
	require.NoError(t, err)
	page := string(text)
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	db := testdb.Open(t, testdb.Main()[0])
	for old, mine := range map[string]string{
		pageDatabase: db.DSN, pageFirst: freeAddress(t), pageSecond: freeAddress(t), pageClone: root,
	} {
		require.Contains(t, page, old)
		page = strings.ReplaceAll(page, old, mine)
	}
	r := newReader(t)
	ran := 0
	for _, s := range steps(page) {
		if _, skipped := s.remarks["not run"]; !skipped {
			r.follow(s)
			ran++
		}
	}
	require.Greater(t, ran, 30)
	for name, term := range r.terminals {
		require.Empty(t, term.rest(), "terminal %s: the page does not show this", name)
	}
}

// freeAddress is free until something else takes it.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		// Below the ports that systems give to clients: the shop is stopped and started, and a client must
		// not take its port meanwhile.
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		require.NoError(t, listener.Close())
		return listener.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}

func TestThePageIsCompared(t *testing.T) {
	t.Parallel()
	const mine, other = "01KAQ4T0Z9M6Y2W8E5R3X1C7VB", "01KAQ4T0Z9M6Y2W8E5R3X1C7VC"
	k := known{}
	require.True(t, k.matches("a  1   01AAAAAAAAAAAAAAAAAAAAAAAA 2026-01-02T03:04:05Z", "a 1 "+mine+"  2027-11-12T13:14:15Z"))
	require.False(t, k.matches("a 1", "a 2"))
	require.False(t, k.matches("a", "a b"))
	require.False(t, k.matches("event_id=01AAAAAAAAAAAAAAAAAAAAAAAA", "event_id="+other), "it was another one before")
	require.True(t, k.matches("process 17 serves", "process 4711 serves"))
	swapped := step{remarks: map[string]string{"order": "any"}, text: "a 1\nb 1\n"}
	(&reader{t: t, known: known{}}).compare(swapped, []string{"b 1", "a 1"})
	require.Equal(t, "kill -9 4711 "+mine+" 170", k.replace("kill -9 17 01AAAAAAAAAAAAAAAAAAAAAAAA 170"))
	list := steps("x\n<!-- file: a.go -->\n```go\npackage a\n```\n\n<!-- interrupt: 1 -->\n<!-- terminal: 1 -->\n```console\nls\nls -l\n```\n")
	require.Len(t, list, 2)
	require.Equal(t, "a.go", list[0].remarks["file"])
	require.Equal(t, "package a\n", list[0].text)
	require.Equal(t, map[string]string{"interrupt": "1", "terminal": "1"}, list[1].remarks)
	require.Equal(t, "TUTORIAL.md:9", list[1].position)
}
