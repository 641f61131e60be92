package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The largest circles of package outbox: types, and files, that name each other, directly or
// through others. A reader of a type in a circle has to read the whole circle. These bounds only go
// down.
const (
	typesInACircle = 9
	filesInACircle = 6
)

func TestTheLargestCirclesOfPackageOutboxDoNotGrow(t *testing.T) {
	t.Parallel()
	named, files := references(t, filepath.Join("..", "..", "outbox"))
	circle := largestCircle(named)
	require.LessOrEqual(t, len(circle), typesInACircle, "types: %v", circle)
	circle = largestCircle(files)
	require.LessOrEqual(t, len(circle), filesInACircle, "files: %v", circle)
}

func TestTheLargestCircleIsFound(t *testing.T) {
	t.Parallel()
	edges := graph{}
	for _, edge := range []string{"a b", "b c", "c a", "c d", "d e", "e d", "f a", "f f"} {
		from, to, _ := strings.Cut(edge, " ")
		edges.add(from, to)
	}
	require.Equal(t, []string{"a", "b", "c"}, largestCircle(edges))
}

type graph map[string]map[string]bool

func (g graph) add(from, to string) {
	if g[from] == nil {
		g[from] = map[string]bool{}
	}
	g[from][to] = true
}

// noImports stands for the packages that a package imports: the names of its own resolve without
// them.
type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	pkg.MarkComplete()
	return pkg, nil
}

// references are the types and the files of a package, each with those that it names. A type names
// the types that the declaration and the methods name.
func references(t *testing.T, folder string) (named, files graph) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	set := token.NewFileSet()
	var parsed []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed = append(parsed, file)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := checker.Check(folder, set, parsed, info)
	named, files = graph{}, graph{}
	fileOf := func(pos token.Pos) string { return filepath.Base(set.Position(pos).Filename) }
	for _, file := range parsed {
		for _, decl := range file.Decls {
			from := declared(decl)
			ast.Inspect(decl, func(n ast.Node) bool {
				name, ok := n.(*ast.Ident)
				if !ok || info.Uses[name] == nil || info.Uses[name].Pkg() != pkg {
					return true
				}
				used := info.Uses[name]
				files.add(fileOf(name.Pos()), fileOf(used.Pos()))
				if _, isType := used.(*types.TypeName); isType && used.Parent() == pkg.Scope() && from != "" {
					named.add(from, used.Name())
				}
				return true
			})
		}
	}
	return named, files
}

// declared is the type that a declaration belongs to: a type, or the receiver of a method.
func declared(decl ast.Decl) string {
	switch decl := decl.(type) {
	case *ast.GenDecl:
		if len(decl.Specs) == 1 {
			if spec, ok := decl.Specs[0].(*ast.TypeSpec); ok {
				return spec.Name.Name
			}
		}
	case *ast.FuncDecl:
		if decl.Recv != nil {
			name := ""
			ast.Inspect(decl.Recv.List[0].Type, func(n ast.Node) bool {
				if ident, ok := n.(*ast.Ident); ok && name == "" {
					name = ident.Name
				}
				return true
			})
			return name
		}
	}
	return ""
}

// largestCircle is the largest strongly connected component (Tarjan, "Depth-first search and linear
// graph algorithms", 1972).
func largestCircle(edges graph) (largest []string) {
	index, low, onStack := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(node string)
	visit = func(node string) {
		index[node] = len(index) + 1
		low[node] = index[node]
		stack = append(stack, node)
		onStack[node] = true
		for next := range edges[node] {
			if index[next] == 0 {
				visit(next)
				low[node] = min(low[node], low[next])
			} else if onStack[next] {
				low[node] = min(low[node], index[next])
			}
		}
		if low[node] != index[node] {
			return
		}
		begin := slices.Index(stack, node)
		circle := slices.Clone(stack[begin:])
		stack = stack[:begin]
		for _, member := range circle {
			onStack[member] = false
		}
		if len(circle) > len(largest) {
			largest = circle
		}
	}
	for node := range edges {
		if index[node] == 0 {
			visit(node)
		}
	}
	slices.Sort(largest)
	return largest
}
