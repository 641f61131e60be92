// Package contracts keeps the formats of a program's events in files, and fails a test when a change
// breaks a reader of the events:
//
//	// TestContracts fails when an event changes. OUTBOX_CONTRACTS=update writes the files again.
//	func TestContracts(t *testing.T) {
//		contracts.Check(t, "contracts", orders.Placed, orders.Shipped)
//	}
//
// The folder has a JSON Schema with an example for each topic, and an AsyncAPI 3 document for all of
// them. Commit the folder: a review shows how a payload changes.
//
// A changed payload has two kinds of readers. Consumers were made for the old format and get payloads of
// the new build. Events that wait, and dead letters, have payloads of the old build, and the listeners of
// the new build read them; [outbox.Topic.WithVersion] helps them.
package contracts
