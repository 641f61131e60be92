// Package schema has the entities of the shop.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Order is a row of the table orders.
type Order struct{ ent.Schema }

// Fields are the columns.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("id"), field.String("item").NotEmpty()}
}

// Annotations name the table.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "orders"}}
}
