package outbox

import "context"

func markOwned(ctx context.Context, store Store, db DB, outcome Outcome, owner string, marks []Mark) (int, error) {
	for i := range marks {
		marks[i].Lease = owner
	}
	left, err := store.Mark(ctx, db, outcome, marks)
	if err != nil {
		return 0, err
	}
	return len(marks) - len(left), nil
}

func leasesOf(owner string, ids []string) []Lease {
	leases := make([]Lease, len(ids))
	for i, id := range ids {
		leases[i] = Lease{EventID: id, Name: owner}
	}
	return leases
}
