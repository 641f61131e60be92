package contracts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/contracts"
	"github.com/outboxkit/outbox-go/outbox"
)

// recorder is a test that keeps what it is told.
type recorder struct{ failures, logs []string }

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Logf(format string, args ...any) {
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) String() string { return strings.Join(append(r.failures, r.logs...), "\n") }

type (
	orderV1 struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
	}
	orderNote struct { // a compatible change of orderV1
		ID    string `json:"id"`
		Total int    `json:"total"`
		Note  string `json:"note,omitempty"`
	}
	orderV2 struct {
		ID    string `json:"id"`
		Cents int    `json:"cents"`
	}
)

func placed[T any]() outbox.Topic[T] { return outbox.NewTopic[T]("Order", "OrderPlaced") }

// check runs Check with a value of the variable.
func check(t *testing.T, mode, folder string, topics ...contracts.Topic) *recorder {
	t.Helper()
	t.Setenv(contracts.Variable, mode)
	r := &recorder{}
	contracts.Check(r, folder, topics...)
	return r
}

func TestCheckKeepsTheFilesOfTheTopics(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "contracts")
	v1, note, v2 := placed[orderV1](), placed[orderNote](), placed[orderV2]()

	require.Contains(t, check(t, "", folder, v1).String(), "OUTBOX_CONTRACTS=update")
	require.Empty(t, check(t, "update", folder, v1).failures)
	require.FileExists(t, filepath.Join(folder, "Order.OrderPlaced.json"))
	require.FileExists(t, filepath.Join(folder, "asyncapi.json"))
	require.Empty(t, check(t, "", folder, v1).String())

	// A compatible change is written by an update.
	says := check(t, "", folder, note).String()
	require.Contains(t, says, "no change breaks a reader: Order.OrderPlaced.json, asyncapi.json")
	require.Empty(t, check(t, "update", folder, note).failures)
	require.Empty(t, check(t, "", folder, note).String())

	// A change that breaks a reader has to be accepted.
	for _, mode := range []string{"", "update"} {
		says = check(t, mode, folder, v2).String()
		require.Contains(t, says, "Order/OrderPlaced total: is removed (breaks consumers)")
		require.Contains(t, says, "Order/OrderPlaced cents: is new and required, and waiting events lack it (breaks waiting events)")
		require.Contains(t, says, "OUTBOX_CONTRACTS=accept")
	}
	require.NotEmpty(t, check(t, "", folder, v2).failures, "the update wrote nothing")
	require.Empty(t, check(t, "accept", folder, v2).failures)
	require.Empty(t, check(t, "", folder, v2).String())
}

// With a version and a function, waiting events do not break, and consumers still do.
func TestAVersionSavesWaitingEvents(t *testing.T) {
	folder := t.TempDir()
	require.Empty(t, check(t, "update", folder, placed[orderV1]()).failures)

	says := check(t, "", folder, placed[orderV2]().WithVersion(2, outbox.From(1, func(old orderV1) (orderV2, error) {
		return orderV2{ID: old.ID, Cents: 100 * old.Total}, nil
	}))).String()
	require.Contains(t, says, "1 changes break readers")
	require.Contains(t, says, "total: is removed (breaks consumers)")

	says = check(t, "", folder, placed[orderV2]().WithVersion(2)).String()
	require.Contains(t, says, "listeners no longer read version 1")
}

func TestAKindThatIsGoneBreaksReaders(t *testing.T) {
	folder := t.TempDir()
	other := outbox.NewTopic[orderV1]("Order", "OrderShipped")
	require.Empty(t, check(t, "update", folder, placed[orderV1](), other).failures)
	require.Contains(t, check(t, "update", folder, other).String(), "Order/OrderPlaced: the kind is gone")
	require.Empty(t, check(t, "accept", folder, other).failures)
	require.NoFileExists(t, filepath.Join(folder, "Order.OrderPlaced.json"))
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	v1 := placed[orderV1]()
	require.Contains(t, check(t, "yes", folder, v1).String(), "OUTBOX_CONTRACTS is a text of 3 bytes; it must be update, accept or empty")
	require.Contains(t, check(t, "", folder).String(), "there are no topics")
	require.Contains(t, check(t, "", folder, nil).String(), "a topic is nil")
	require.Contains(t, check(t, "", folder, v1, v1).String(), "have the same file, Order.OrderPlaced.json; give each kind once")

	require.NoError(t, os.WriteFile(filepath.Join(folder, "package.json"), []byte(`{"name":"x"}`), 0o600))
	require.Contains(t, check(t, "accept", folder, v1).String(), "package.json is no file of this package")
	require.FileExists(t, filepath.Join(folder, "package.json"), "other files are kept")
}

func TestLineEndsOfWindowsAreNoChange(t *testing.T) {
	folder := t.TempDir()
	v1 := placed[orderV1]()
	require.Empty(t, check(t, "update", folder, v1).failures)
	path := filepath.Join(folder, "Order.OrderPlaced.json")
	data, err := os.ReadFile(path) //nolint:gosec // of the test
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(data), "\n", "\r\n")), 0o600))
	require.Empty(t, check(t, "", folder, v1).String())
}

func TestTheNameOfTheFolderIsNoPattern(t *testing.T) {
	for _, name := range []string{"v[1]", "["} {
		folder := filepath.Join(t.TempDir(), name)
		require.Empty(t, check(t, contracts.Update, folder, placed[orderV1]()).failures, name)
		require.Empty(t, check(t, "", folder, placed[orderV1]()).failures, name)
		require.NotEmpty(t, check(t, contracts.Update, folder, placed[orderV2]()).failures, "%s: the change breaks readers", name)
	}
}
