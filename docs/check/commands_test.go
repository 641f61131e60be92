package check_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ranByTests are the pages whose scripts and commands a test runs, with the file and the name of
// the test. The test also compiles the blocks that are files.
var ranByTests = map[string][2]string{
	"docs/TUTORIAL.md":          {"docs/code/tutorial/tutorial_test.go", "TestTheTutorialRuns"},
	"docs/how-to/migrations.md": {"proof/migrationtest/tools_test.go", "TestGooseTakesTheFiles"},
}

// isRun reports whether a test runs a page, or the original of a translation.
func isRun(path string) bool {
	_, page := ranByTests[path]
	_, original := ranByTests[translated[path]]
	return page || original
}

const module = "github.com/outboxkit/outbox-go"

// commands are the names that a command of a page may use.
type commands struct {
	targets map[string]bool   // of the Makefile
	folders map[string]bool   // with Go files, from the root, which is "."
	help    map[string]string // of each command of cmd/outbox, by the words of the command
}

func readCommands(t *testing.T) commands {
	t.Helper()
	c := commands{map[string]bool{}, map[string]bool{".": true}, map[string]string{}}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9/]+):`).FindAllStringSubmatch(string(makefile), -1) {
		c.targets[m[1]] = true
	}
	for file := range goFiles(t) {
		c.folders[path.Dir(file)] = true
	}
	// TestTheHelpIsAsReviewed holds these files to the commands.
	helps, err := filepath.Glob(filepath.Join(root, "cmd", "outbox", "testdata", "help", "*.txt"))
	require.NoError(t, err)
	require.Greater(t, len(helps), 20)
	for _, file := range helps {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		c.help[strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".txt"), "-", " ")] = string(text)
	}
	return c
}

var (
	assignment = regexp.MustCompile(`^([A-Z0-9_]+=('[^']*'|"[^"]*"|\S*)\s+)+`)
	remark     = regexp.MustCompile(`(^|\s)#\s.*$`)
	operator   = regexp.MustCompile(`\s(&&|\|\||\||;)\s`)
	redirected = regexp.MustCompile(`\s[<>].*$`)
)

// problem says which part of a line of a console block is wrong; empty if no part is wrong. With
// known, problem reports only commands that it knows.
func (c commands) problem(line string, known bool) string {
	line = strings.TrimPrefix(strings.TrimSpace(remark.ReplaceAllString(line, "")), "$ ")
	for _, command := range operator.Split(line, -1) {
		command = redirected.ReplaceAllString(assignment.ReplaceAllString(command+" ", ""), "")
		words := strings.Fields(command)
		if len(words) == 0 {
			continue
		}
		problem := ""
		switch words[0] {
		case "make":
			problem = c.makeProblem(words[1:])
		case "go":
			problem = c.goProblem(words[1:])
		case "outbox":
			problem = c.outboxProblem(words[1:])
		case "export", "cd", "mkdir":
		default:
			if !known {
				problem = fmt.Sprintf("%q is neither make, go nor outbox: put <!-- not run: the reason --> on the line before the block", words[0])
			}
		}
		if problem != "" {
			return problem
		}
	}
	return ""
}

func (c commands) makeProblem(args []string) string {
	for _, arg := range args {
		if !strings.Contains(arg, "=") && !strings.HasPrefix(arg, "-") && !strings.HasSuffix(arg, "'") && !strings.HasSuffix(arg, `"`) && !c.targets[arg] {
			return fmt.Sprintf("the Makefile has no target %s", arg)
		}
		if strings.ContainsAny(arg, `'"`) {
			break // a variable's value with blanks
		}
	}
	return ""
}

// goProblem checks the packages of this repository that an argument names: by a path, or as a
// package of the module.
func (c commands) goProblem(args []string) string {
	verb, folder := "", "."
	for i, arg := range args {
		named := arg
		switch {
		case arg == "--":
			return c.problem(strings.Join(args[i+1:], " "), true)
		case i > 0 && args[i-1] == "-C":
			folder = arg
			continue
		case isFlag(arg) || verb == "ran":
			continue
		case verb == "":
			verb = arg
			continue
		case !slices.Contains([]string{"run", "test", "get", "install", "build", "vet", "doc"}, verb):
			return ""
		case arg == module || strings.HasPrefix(arg, module+"/") || strings.HasPrefix(arg, module+"@"):
			arg, _, _ = strings.Cut(path.Join(".", strings.TrimPrefix(arg, module)), "@")
		case arg == "." || strings.HasPrefix(arg, "./"):
			arg = path.Join(folder, arg)
		}
		if verb == "run" {
			verb = "ran" // the rest are the program's arguments
		}
		ours := arg != named || arg == "." || strings.HasPrefix(named, "./")
		arg = path.Clean(strings.TrimSuffix(arg, "..."))
		if ours && !strings.HasPrefix(arg, "..") && !c.folders[arg] && (arg != "." || !strings.HasSuffix(named, "...")) {
			return fmt.Sprintf("there is no package %s", named)
		}
	}
	return ""
}

func isFlag(arg string) bool { return strings.HasPrefix(arg, "-") }

// outboxProblem checks the subcommands and the flags.
func (c commands) outboxProblem(args []string) string {
	command, given := "outbox", false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		help := c.help[command]
		_, isGroup := c.help[command+" "+arg]
		switch {
		case isFlag(arg):
			name, _, hasValue := strings.Cut(arg, "=")
			takesValue, exists := flags(help)[name]
			if !exists {
				return fmt.Sprintf("%s has no flag %s", command, name)
			}
			if takesValue && !hasValue {
				i++
			}
		case isGroup && !given:
			command += " " + arg
		case strings.Contains(help, "\nAvailable Commands:\n"):
			if regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(arg) + ` `).MatchString(help) {
				return "" // a command of cobra's own
			}
			return fmt.Sprintf("%s has no command %s", command, arg)
		default:
			given = true
		}
	}
	return ""
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:(-\w), )?(--[a-z-]+)(?: (\w+))?  +`)

// flags are the flags of a help text; true takes a value.
func flags(help string) map[string]bool {
	found := map[string]bool{}
	for _, m := range flagLine.FindAllStringSubmatch(help, -1) {
		found[m[2]] = m[3] != ""
		if m[1] != "" {
			found[m[1]] = m[3] != ""
		}
	}
	return found
}

var notRun = regexp.MustCompile(`(?m)^<!-- not run: .+ -->$`)

// wrongCommands names the commands of a page that do not exist, and the commands that nothing
// checks.
func (c commands) wrongCommands(p page) (problems []string) {
	blocks, _ := p.parts()
	for _, b := range blocks {
		lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(b.text, "\\\n", ""), "\n"), "\n")
		switch b.kind {
		case "console", "sh", "bash", "shell":
			for i, line := range lines {
				if problem := c.problem(line, isRun(p.path) || notRun.MatchString(b.before)); problem != "" {
					problems = append(problems, fmt.Sprintf("%s:%d: %s", p.path, b.line+1+i, problem))
				}
			}
		case "", "text":
			if words := strings.Fields(assignment.ReplaceAllString(lines[0], "")); len(words) > 0 && slices.Contains([]string{"$", "make", "go", "outbox"}, words[0]) {
				problems = append(problems, fmt.Sprintf("%s:%d: a block of commands begins with ```console", p.path, b.line))
			}
		}
	}
	return problems
}

// wrongSpans names the commands in a page's text that do not exist.
func (c commands) wrongSpans(p page) (problems []string) {
	for _, s := range p.spans() {
		if first, _, _ := strings.Cut(s.text, " "); first == s.text || !slices.Contains([]string{"make", "outbox"}, first) {
			continue
		}
		if problem := c.problem(s.text, true); problem != "" {
			problems = append(problems, fmt.Sprintf("%s:%d: `%s`: %s", p.path, s.line, s.text, problem))
		}
	}
	return problems
}

func TestCommandsExist(t *testing.T) {
	t.Parallel()
	c := readCommands(t)
	check(t, func(p page) []string { return append(c.wrongCommands(p), c.wrongSpans(p)...) })
}

func TestTheTestsThatRunPagesExist(t *testing.T) {
	t.Parallel()
	for path, test := range ranByTests {
		require.NotEmpty(t, read(t, path).text, path)
		require.Contains(t, goFiles(t)[test[0]], "func "+test[1]+"(t *testing.T)", path)
		require.Contains(t, goFiles(t)[test[0]], filepath.Base(path), "%s does not read %s", test[1], path)
	}
}

func TestACommandThatDoesNotExistIsNamed(t *testing.T) {
	t.Parallel()
	c := commands{
		targets: map[string]bool{"test": true, "db/up": true},
		folders: map[string]bool{".": true, "outbox": true, "bench": true, "tools/x": true},
		help: map[string]string{
			"outbox":      "x\n\nAvailable Commands:\n  completion  y\n  dead        z\n\nFlags:\n      --dsn string     address\n  -h, --help           help\n      --json           print JSON\n",
			"outbox dead": "Flags:\n      --all           all\n      --dsn string     address\n",
		},
	}
	for command, want := range map[string]string{
		"make test         # all":                 "",
		"X='a b' make db/up FLAGS='-rate 100 -x'": "",
		"make tset":                                              "the Makefile has no target tset",
		"$ go test ./outbox -run Purge":                          "",
		"go test ./outbx":                                        "there is no package ./outbx",
		"go test ./...":                                          "",
		"go test ./outbx/...":                                    "there is no package ./outbx/...",
		"go run ./tools/x -- go test ./outbx":                    "there is no package ./outbx",
		"go -C bench run .":                                      "",
		"go -C benhc run .":                                      "there is no package .",
		"go get " + module:                                       "",
		"go install " + module + "/outbox@latest":                "",
		"go get " + module + "/inbx@latest":                      "there is no package",
		"go run example.com/ent generate ./ent":                  "",
		"go -C ../else install ./cmd":                            "",
		"go generate ./ent":                                      "",
		"go get example.com/else":                                "",
		"go mod init shop && make test":                          "",
		"export OUTBOX_DSN=x":                                    "",
		"outbox --dsn x dead --all id":                           "",
		"outbox dead --al":                                       "outbox dead has no flag --al",
		"outbox dead --json":                                     "outbox dead has no flag --json",
		"outbox daed":                                            "outbox has no command daed",
		"outbox completion bash":                                 "",
		"outbox dead --all | head":                               `"head" is neither`,
		"outbox dead --all > file":                               "",
		"kubectl get pods":                                       `"kubectl" is neither`,
		"# only a remark":                                        "",
		"OUTBOX_TEST_LONG=1 go test ./outbox -run 'A/(b|c)/#00'": "",
	} {
		problem := c.problem(command, false)
		if want == "" {
			require.Empty(t, problem, command)
		} else {
			require.Contains(t, problem, want, command)
		}
	}
	wrong := page{"a.md", "run `make tset` and `outbox dead --al`, not `make`\n\n```console\nkubectl x\nmake tset\n```\n\n<!-- not run: needs a cluster -->\n```console\nkubectl x\nmake tset\n```\n\n```\nmake test\n```\n"}
	require.Len(t, c.wrongSpans(wrong), 2)
	problems := c.wrongCommands(wrong)
	require.Len(t, problems, 4)
	require.Contains(t, problems[0], "a.md:4: ")
	require.Contains(t, problems[1], "a.md:5: ")
	require.Contains(t, problems[2], "a.md:11: the Makefile has no target tset")
	require.Contains(t, problems[3], "a.md:14: a block of commands begins with ```console")
}
