package dashboard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestAValueIsEscapedForItsPlace(t *testing.T) {
	t.Parallel()
	const hostile = `"><script>alert('&')</script>`
	const escaped = `&#34;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;`
	bold := tags(`<b title="{}">{}</b>`, hostile, hostile)
	for _, test := range []struct {
		name      string
		got, want markup
	}{
		{"in a text", tags(`<p>{}</p>`, hostile), `<p>` + escaped + `</p>`},
		{"in an attribute", tags(`<p title="{}">`, hostile), `<p title="` + escaped + `">`},
		{"in a later attribute", tags(`<p class="{}" title="a {}">{}`, "x", hostile, hostile), `<p class="x" title="a ` + escaped + `">` + escaped},
		{"in a literal that begins in a tag", when(true, ` title="{}"`, hostile), ` title="` + escaped + `"`},
		{"a value without quotes", tags(`<p title={}>`, "x onclick=y"), `<p title=>`},
		{"a value with other quotes", tags(`<p title='{}'>`, hostile), `<p title=''>`},
		{"markup in a text", tags(`<p>{}</p>`, bold), `<p><b title="` + escaped + `">` + escaped + `</b></p>`},
		{"markup in an attribute", tags(`<p title="{}">`, tags(`<b title="{}">`, "x")), `<p title="&lt;b title=&#34;x&#34;&gt;">`},
		{"markup as an attribute", tags(`<p{}>`, when(true, ` hidden`)), `<p hidden>`},
		{"nothing", tags(`<p{}>`, when(false, ` hidden`)), `<p>`},
		{"an address", tags(`<a href="{}">`, link("event", "id", hostile)), `<a href="event?id=%22%3E%3Cscript%3Ealert%28%27%26%27%29%3C%2Fscript%3E">`},
		{"a text as an address", tags(`<a href="{}">`, "javascript:alert(1)"), `<a href="#">`},
		{"a text as an address in a literal that begins in a tag", tags(`{}`, when(true, ` href="{}"`, "javascript:alert(1)")), ` href="#"`},
		{"a text as a source", tags(`<img src="{}">`, "https://elsewhere"), `<img src="#">`},
		{"braces in a value", tags(`<p>{} {}</p>`, "{}", "b"), `<p>{} b</p>`},
		{"hidden fields", hidden(map[string][]string{"b": {hostile}, "a": {"1", "2"}}), `<input type="hidden" name="a" value="1"><input type="hidden" name="a" value="2"><input type="hidden" name="b" value="` + escaped + `">`},
	} {
		require.Equal(t, test.want, test.got, test.name)
	}
}

// FuzzTags: no value ends its attribute or begins a tag.
func FuzzTags(f *testing.F) {
	for _, seed := range []string{"", `"`, `'`, "<", ">", "&#34;", "{}", "\x00", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got := string(tags(`<a href="{}" title="{}" class="{}">{}</a>`, value, value, link("event", "id", value), value))
		require.Equal(t, 6, strings.Count(got, `"`))
		require.Equal(t, 2, strings.Count(got, "<"))
		require.Equal(t, 2, strings.Count(got, ">"))
		require.True(t, strings.HasPrefix(got, `<a href="#" title="`))
	})
}

// TestHTMLIsWrittenInTheSource: only html.go makes markup and literals of strings, each literal has as
// many values as places, and no place is in a script, in a style or without quotes.
func TestHTMLIsWrittenInTheSource(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	checked := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "html.go" {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, isCall := n.(*ast.CallExpr)
			if !isCall {
				return true
			}
			place := set.Position(call.Pos())
			function, _ := call.Fun.(*ast.Ident)
			if function == nil {
				return true
			}
			first := map[string]int{"tags": 0, "when": 1}
			switch i, writes := first[function.Name]; {
			case writes:
				checked++
				text, isLiteral := call.Args[i].(*ast.BasicLit)
				require.True(t, isLiteral, "%s: the text is a string in quotes", place)
				html, err := strconv.Unquote(text.Value)
				require.NoError(t, err)
				require.Equal(t, strings.Count(html, "{}"), len(call.Args)-i-1, "%s: each {} has a value", place)
				require.NotRegexp(t, `(?i)=\{\}|='|\son\w+=|\sstyle=|<style|<script>`, html, "%s: values are in double quotes, and no code is inline", place)
			case function.Name == "markup" || function.Name == "literal":
				require.Fail(t, "a conversion", "%s: write HTML with tags", place)
			case function.Name == "address":
				require.Contains(t, []string{"page.go", "confirm.go"}, name, "%s: make an address with link", place)
			}
			return true
		})
	}
	require.Greater(t, checked, 50, "the calls are found")
}

func TestTimesOfAProseAreExactTimes(t *testing.T) {
	t.Parallel()
	const at = `<time class="exact" datetime="2026-11-29T02:13:05Z">2026-11-29 02:13:05 UTC</time>`
	for text, want := range map[string]string{
		"":                        "",
		"it is <due>":             "it is &lt;due&gt;",
		"2026-11-29 02:13:05 UTC": at,
		"since 2026-11-29 02:13:05 UTC; until 2026-11-29 02:13:05 UTC: 5 UTC": "since " + at + "; until " + at + ": 5 UTC",
		"ä UTC, 2026-13-29 02:13:05 UTC, 2026-11-29 02:13:05 UTC<":            "ä UTC, 2026-13-29 02:13:05 UTC, " + at + "&lt;",
	} {
		require.Equal(t, want, string(prose(text)), text)
	}
}

func TestAnAgeAboveAnHourHasTwoUnits(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for d, want := range map[time.Duration]string{
		59 * time.Minute: "59 min ago", 4*time.Hour + 57*time.Minute: "4 h 57 min ago", -(3*time.Hour - 90*time.Second): "in 2 h 58 min",
		47*time.Hour + 59*time.Minute: "47 h 59 min ago", 75 * time.Hour: "3 days 3 h ago",
	} {
		require.Equal(t, want, ago(now.Add(-d), now))
	}
}

func TestATimelineDoesNotQuoteAnErrorThatIsNotStored(t *testing.T) {
	t.Parallel()
	steps := timeline(&outbox.EventRow{Status: outbox.StatusDone, Envelope: outbox.Envelope{Attempts: 1}})
	require.Equal(t, step{What: "1 failed attempt", Text: "(no error is stored: a process that dies leaves none)"}, steps[1])
	steps = timeline(&outbox.EventRow{Status: outbox.StatusRetry, LastError: "boom", Envelope: outbox.Envelope{Attempts: 2}})
	require.Equal(t, step{What: "2 failed attempts", Text: "the last one: boom", Bad: true}, steps[1])
}
