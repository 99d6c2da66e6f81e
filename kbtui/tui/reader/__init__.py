"""The reader pane: its documents, their layout, and the commands that move through them."""
