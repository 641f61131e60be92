package contracts_test

import (
	"fmt"
	"os"

	"github.com/outboxkit/outbox-go/contracts"
	"github.com/outboxkit/outbox-go/outbox"
)

// printer stands for the *testing.T of a test.
type printer struct{}

func (printer) Helper() {}

func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (printer) Logf(string, ...any) {}

// A test calls Check with the topics of the program. The test fails when a payload changes.
func ExampleCheck() {
	var t printer // in a test, its *testing.T
	folder, err := os.MkdirTemp("", "contracts")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	type order struct {
		ID    string `json:"id"`
		Total int    `json:"total"`
	}
	_ = os.Setenv(contracts.Variable, contracts.Update) // writes the files
	contracts.Check(t, folder, outbox.NewTopic[order]("Order", "OrderPlaced"))

	type changed struct {
		ID    string `json:"id"`
		Total string `json:"total"`
	}
	_ = os.Unsetenv(contracts.Variable)
	contracts.Check(t, folder, outbox.NewTopic[changed]("Order", "OrderPlaced"))
	// Output:
	// contracts: 1 changes break readers:
	//   Order/OrderPlaced total: was integer and is string (breaks consumers and waiting events)
	// Keep the old format beside the new one, give the topic a version (outbox.Topic.WithVersion), or accept the changes: OUTBOX_CONTRACTS=accept go test
}
