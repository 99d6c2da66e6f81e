"""The reader pane: documents, their layout, and moving through them."""
