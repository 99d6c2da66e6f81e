"""The reader pane: documents, their layout, and how the user moves in them."""
