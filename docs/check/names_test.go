package check_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// api is the declarations and exports of Go files.
type api struct {
	packages map[string]map[string]string // the kind of each name of a package: func, type, var or const
	folders  map[string]string            // the packages that users import, by folder
	members  map[string]map[string]bool   // fields and methods, by "package.Type"
	embedded map[string][]string          // types in a type, as "package.Type"; a type of others is ""
	structs  map[string][]string          // exported fields, by "package.Type"
	options  []string                     // the exported functions that return an Option
	fields   map[string][]string          // the types of the fields with a name, as above
}

// notPublic are folders whose packages users do not import.
var notPublic = []string{"internal", "proof", "cmd", "samples", "bench", "docs"}

func isPublic(folder string) bool {
	return !slices.ContainsFunc(strings.Split(folder, "/"), func(part string) bool { return slices.Contains(notPublic, part) })
}

// readAPI reads the declarations of Go files that are no tests.
func readAPI(t *testing.T, texts map[string]string) *api {
	t.Helper()
	a := &api{
		packages: map[string]map[string]string{}, folders: map[string]string{}, members: map[string]map[string]bool{},
		embedded: map[string][]string{}, structs: map[string][]string{}, fields: map[string][]string{},
	}
	for file, text := range texts {
		folder := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(folder, "bench") || strings.HasPrefix(folder, "samples") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		name := parsed.Name.Name
		if name == "main" {
			continue
		}
		if a.packages[name] == nil {
			a.packages[name] = map[string]string{}
		}
		if isPublic(folder) {
			a.folders[folder] = name
		}
		for _, declaration := range parsed.Decls {
			a.declare(name, declaration)
		}
	}
	return a
}

func (a *api) declare(pkg string, declaration ast.Decl) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			a.packages[pkg][d.Name.Name] = "func"
			if results := d.Type.Results; d.Name.IsExported() && results != nil && strings.HasPrefix(typeName(pkg, results.List[0].Type), pkg+".") && strings.HasSuffix(typeName(pkg, results.List[0].Type), "Option") {
				a.options = append(a.options, pkg+"."+d.Name.Name)
			}
		} else {
			a.member(typeName(pkg, d.Recv.List[0].Type), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					a.packages[pkg][name.Name] = d.Tok.String()
				}
			case *ast.TypeSpec:
				a.packages[pkg][s.Name.Name] = "type"
				a.typ(pkg, pkg+"."+s.Name.Name, s.Type)
			}
		}
	}
}

func (a *api) typ(pkg, name string, expr ast.Expr) {
	list := &ast.FieldList{}
	switch e := expr.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	case *ast.Ident, *ast.SelectorExpr, *ast.StarExpr:
		a.embedded[name] = append(a.embedded[name], typeName(pkg, e))
	}
	for _, field := range list.List {
		for _, fieldName := range field.Names {
			a.member(name, fieldName.Name)
			if _, isStruct := expr.(*ast.StructType); isStruct && fieldName.IsExported() {
				a.structs[name] = append(a.structs[name], fieldName.Name)
			}
			if slices.Contains(slices.Collect(maps.Values(a.folders)), pkg) {
				a.fields[fieldName.Name] = append(a.fields[fieldName.Name], typeName(pkg, field.Type))
			}
		}
		if len(field.Names) == 0 {
			embedded := typeName(pkg, field.Type)
			a.embedded[name] = append(a.embedded[name], embedded)
			a.member(name, embedded[strings.LastIndex(embedded, ".")+1:])
		}
	}
}

func (a *api) member(name, member string) {
	if a.members[name] == nil {
		a.members[name] = map[string]bool{}
	}
	a.members[name][member] = true
}

// typeName is a type as "package.Type", without a pointer or parameters. typeName is "" for a type
// without a name.
func typeName(pkg string, expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return typeName(pkg, e.X)
	case *ast.ParenExpr:
		return typeName(pkg, e.X)
	case *ast.IndexExpr:
		return typeName(pkg, e.X)
	case *ast.IndexListExpr:
		return typeName(pkg, e.X)
	case *ast.Ident:
		return pkg + "." + e.Name
	case *ast.SelectorExpr:
		if of, ok := e.X.(*ast.Ident); ok {
			return of.Name + "." + e.Sel.Name
		}
	}
	return ""
}

// has reports whether a type has a member. Of types that others declare it has all.
func (a *api) has(typ, member string) bool {
	pkg, name, _ := strings.Cut(typ, ".")
	if a.packages[pkg][name] == "" {
		return pkg == "" || a.packages[pkg] == nil || name == "error" && member == "Error"
	}
	return a.members[typ][member] || slices.ContainsFunc(a.embedded[typ], func(embedded string) bool { return a.has(embedded, member) })
}

var (
	qualified = regexp.MustCompile(`(?:^|[^\w./"-])([a-z][a-z0-9]*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	ofType    = regexp.MustCompile(`(?:^|[^\w./"-])([A-Z]\w*)\.([A-Z]\w*)`)
)

// unknownNames lists the names in backticks on a page that no package declares.
func (a *api) unknownNames(p page) (problems []string) {
	for _, s := range p.spans() {
		for _, m := range qualified.FindAllStringSubmatch(s.text, -1) {
			names, ours := a.packages[m[1]]
			switch {
			case !ours:
			case names[m[2]] == "":
				problems = append(problems, fmt.Sprintf("%s:%d: `%s`: package %s has no %s", p.path, s.line, s.text, m[1], m[2]))
			case m[3] != "" && !a.has(m[1]+"."+m[2], m[3]):
				problems = append(problems, fmt.Sprintf("%s:%d: `%s`: %s.%s has no %s", p.path, s.line, s.text, m[1], m[2], m[3]))
			}
		}
		for _, m := range ofType.FindAllStringSubmatch(s.text, -1) {
			if types := a.named(m[1]); len(types) > 0 && !slices.ContainsFunc(types, func(typ string) bool { return a.has(typ, m[2]) }) {
				problems = append(problems, fmt.Sprintf("%s:%d: `%s`: %s has no %s", p.path, s.line, s.text, strings.Join(types, " or "), m[2]))
			}
		}
	}
	return problems
}

// named are the public types with a name, and the types of the fields with that name.
func (a *api) named(name string) (types []string) {
	for _, pkg := range a.folders {
		if typ := pkg + "." + name; a.packages[pkg][name] == "type" && (a.members[typ] != nil || a.embedded[typ] != nil) {
			types = append(types, typ)
		}
	}
	types = append(types, a.fields[name]...)
	slices.Sort(types)
	return slices.Compact(types)
}

func TestTheNamesOnPagesExist(t *testing.T) {
	t.Parallel()
	a := readAPI(t, goFiles(t))
	require.Greater(t, len(a.folders), 20)
	check(t, a.unknownNames)
}

func TestANameThatNothingDeclaresIsNamed(t *testing.T) {
	t.Parallel()
	a := readAPI(t, map[string]string{
		"outbox/a.go":      "package outbox\nimport \"net/http\"\ntype Config struct { Poll PollOptions; Mode any; http.Handler }\ntype PollOptions struct { Interval int }\ntype Topic[T any] struct { inner }\ntype inner struct { Name string }\nfunc (t *Topic[T]) Listen() {}\nfunc New() {}\nconst DefaultX, ErrY = 1, 2\ntype Mode interface { Is() bool }",
		"outbox/a_test.go": "package outbox\nfunc OnlyATest() {}",
	})
	require.Equal(t, map[string]string{"outbox": "outbox"}, a.folders)
	for text, want := range map[string]string{
		"outbox.New(outbox.Config{})":               "",
		"*outbox.Config":                            "",
		"outbox.Config.Poll":                        "",
		"outbox.Topic.Listen":                       "",
		"outbox.Topic.Name":                         "",
		"outbox.DefaultX":                           "",
		"outbox.Config.ServeHTTP":                   "",
		"Poll.Interval":                             "",
		"Topic.Listen":                              "",
		"http.Anything":                             "",
		"InsertOpts.MaxAttempts":                    "",
		"https://example.com/outbox.New2":           "",
		"outbox.Nwe(cfg)":                           "package outbox has no Nwe",
		"outbox.OnlyATest":                          "package outbox has no OnlyATest",
		"f(outbox.PollOptions{}, outbox.Ordered{})": "package outbox has no Ordered",
		"outbox.PollOptions.Every":                  "outbox.PollOptions has no Every",
		"outbox.Mode.Was":                           "outbox.Mode has no Was",
		"PollOptions.Every":                         "outbox.PollOptions has no Every",
		"Poll.Every":                                "outbox.PollOptions has no Every",
	} {
		problems := a.unknownNames(page{"a.md", "# A\n\nsee `" + text + "`.\n"})
		if want == "" {
			require.Empty(t, problems, text)
			continue
		}
		require.Len(t, problems, 1, text)
		require.Contains(t, problems[0], "a.md:3: ", text)
		require.Contains(t, problems[0], want, text)
	}
}
